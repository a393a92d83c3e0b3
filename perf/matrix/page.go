package main

import (
	"bytes"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"

	"felix/perf/session"
)

// page is the report as one file: it asks for nothing from anywhere.
var page = template.Must(template.New("page").Funcs(template.FuncMap{"bad": isBad, "good": isGood}).Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>felix, measured {{.Date}}</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; vertical-align: top }
th { background: #f4f4f4 }
.bad { color: #a40000; font-weight: 600 } .good { color: #1a6e1a }
li { font-size: .9rem } svg { max-width: 100%; height: auto }
</style>
<h1>felix, measured {{.Date}}</h1>
{{range .Tables}}<h2>{{.Title}}</h2>
{{with .Intro}}<p>{{.}}</p>
{{end}}{{if .Rows}}<div class="wide"><table>
<tr>{{range .Header}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td{{if bad .}} class="bad"{{else if good .}} class="good"{{end}}>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{end}}{{if .Notes}}<ul>{{range .Notes}}<li>{{.}}</li>{{end}}</ul>
{{end}}{{end}}{{range .Charts}}<h2>{{.Title}}</h2>
{{.SVG}}
{{end}}</html>
`))

// isBad and isGood say which words of a table are colored.
func isBad(word string) bool {
	return slices.Contains([]string{string(session.Misses), string(session.VoidRun), string(session.Behind), string(session.FelixVoid)}, word)
}

func isGood(word string) bool {
	return slices.Contains([]string{string(session.Meets), string(session.Ahead)}, word)
}

// pageChart is a chart on the page.
type pageChart struct {
	Title string
	SVG   template.HTML // made by gonum's plotter from names and numbers of the session
}

// htmlPage makes the page.
func htmlPage(s session.Session, pictures []chart) ([]byte, error) {
	data := struct {
		Date   string
		Tables []session.Table
		Charts []pageChart
	}{Tables: s.Tables()}
	switch {
	case s.Cells != nil:
		data.Date = s.Cells.Machine.Time
	case s.Peers != nil:
		data.Date = s.Peers.Machine.Time
	}
	for _, c := range pictures {
		data.Charts = append(data.Charts, pageChart{c.title, template.HTML(c.inline())})
	}
	var b bytes.Buffer
	err := page.Execute(&b, data)
	return b.Bytes(), err
}

// render writes everything that is made from the figures: charts, report and page.
func render(dir string, s session.Session) error {
	pictures, err := charts(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, session.ChartsDir), 0o755); err != nil {
		return err
	}
	var files []string
	for _, c := range pictures {
		file := path.Join(session.ChartsDir, c.name+".svg")
		files = append(files, file)
		if err := os.WriteFile(filepath.Join(dir, file), c.svg, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, session.ReportFile), []byte(s.Markdown(files)), 0o644); err != nil {
		return err
	}
	text, err := htmlPage(s, pictures)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, session.PageFile), text, 0o644)
}
