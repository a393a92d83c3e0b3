package felix_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers says what each package may import of this module. A package that is not listed may not exist; a name
// that ends in /... stands for a package and everything below it.
const layers = `
affinity:
netio/wire:
core:                affinity
wal:                 core netio/wire
wal/faultfs:         wal
fanout:              core netio/wire
replicate:           core wal fanout netio/wire
netio/udp:
netio:               core wal fanout replicate netio/udp netio/wire
netio/faultnet:
netio/admin:         core wal fanout replicate netio netio/wire
felix:               affinity core wal wal/faultfs fanout replicate netio netio/udp netio/wire netio/faultnet netio/admin
client:              netio/udp netio/wire
client/clienttest:   felix client
client/interop:
perf/...:            felix client wal wal/faultfs netio/udp netio/faultnet netio/wire perf/...
cmd/felixd:          felix affinity
cmd/felix:           felix affinity client perf perf/load wal netio/wire
`

// clockAllowed are the packages that may read a clock. The others are given one.
const clockAllowed = "felix client client/... perf/... cmd/..."

// source is one Go file of the module.
type source struct {
	path   string // from the module root, with slashes
	pkg    string // directory from the module root; "felix" for the root itself
	test   bool
	syntax *ast.File
}

// readModule parses every Go file of the module outside testdata.
func readModule(t *testing.T) []source {
	t.Helper()
	var files []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != "." && err == nil {
				return filepath.SkipDir // a module of its own
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(name))
		if pkg == "." {
			pkg = "felix"
		}
		files = append(files, source{filepath.ToSlash(name), pkg, strings.HasSuffix(base, "_test.go"), syntax})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// matches reports whether pkg is named by one of the words of list.
func matches(list, pkg string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(word string) bool {
		if tree, ok := strings.CutSuffix(word, "/..."); ok {
			return pkg == tree || strings.HasPrefix(pkg, tree+"/")
		}
		return pkg == word
	})
}

// allowedImports returns the words behind pkg in the table.
func allowedImports(pkg string) (list string, known bool) {
	for line := range strings.Lines(layers) {
		name, list, ok := strings.Cut(line, ":")
		if ok && matches(name, pkg) {
			return list, true
		}
	}
	return "", false
}

// moduleImport returns the package of this module that an import path names.
func moduleImport(spec *ast.ImportSpec) (pkg string, ok bool) {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return "", false
	}
	if name == "felix" {
		return name, true
	}
	return strings.CutPrefix(name, "felix/")
}

func TestLayers(t *testing.T) {
	for _, problem := range layerProblems(readModule(t)) {
		t.Error(problem)
	}
}

// layerProblems lists the imports that go up or sideways.
func layerProblems(files []source) []string {
	var problems []string
	for _, f := range files {
		allowed, known := allowedImports(f.pkg)
		if !known {
			problems = append(problems, fmt.Sprintf("%s: package %s is not in the table of layers; a new package needs a reason and a line there", f.path, f.pkg))
			continue
		}
		for _, spec := range f.syntax.Imports {
			pkg, ok := moduleImport(spec)
			switch {
			case !ok || pkg == f.pkg:
			case strings.HasPrefix(pkg, "cmd/"):
				problems = append(problems, fmt.Sprintf("%s imports %s: nothing imports a command", f.path, pkg))
			case !f.test && !matches(allowed, pkg):
				problems = append(problems, fmt.Sprintf("%s imports %s: %s may import only [%s]", f.path, pkg, f.pkg, strings.Join(strings.Fields(allowed), " ")))
			}
		}
	}
	return problems
}

// TestPackageComments wants one package comment for each package: in doc.go, or in the file of a package that has one
// file only.
func TestPackageComments(t *testing.T) {
	files, docs := map[string]int{}, map[string][]string{}
	for _, f := range readModule(t) {
		if f.test {
			continue
		}
		files[f.pkg]++
		if f.syntax.Doc != nil {
			docs[f.pkg] = append(docs[f.pkg], f.path)
		}
	}
	for pkg, n := range files {
		if in := docs[pkg]; len(in) != 1 || n > 1 && path.Base(in[0]) != "doc.go" {
			t.Errorf("package %s has its package comment in %v; it belongs in one file, doc.go", pkg, in)
		}
	}
}

// TestClocks finds reads of the wall clock where the clock is an argument, and sleeping tests.
func TestClocks(t *testing.T) {
	for _, problem := range clockProblems(readModule(t)) {
		t.Error(problem)
	}
}

// clockProblems lists the uses of package time that the rules forbid.
func clockProblems(files []source) []string {
	var problems []string
	for _, f := range files {
		name := timeName(f.syntax)
		if name == "" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); !ok || id.Name != name {
				return true
			}
			switch sel.Sel.Name {
			case "Now", "Since", "Until":
				if !f.test && !matches(clockAllowed, f.pkg) {
					problems = append(problems, fmt.Sprintf("%s uses time.%s: the clock comes in as an argument", f.path, sel.Sel.Name))
				}
			case "Sleep":
				if f.test {
					problems = append(problems, fmt.Sprintf("%s uses time.Sleep: a test waits for a condition or uses testing/synctest", f.path))
				}
			}
			return true
		})
	}
	return problems
}

// timeName is the name under which a file knows package time, "" when it does not import it.
func timeName(file *ast.File) string {
	for _, spec := range file.Imports {
		if spec.Path.Value != `"time"` {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return "time"
	}
	return ""
}

// TestLayerRulesBite gives each rule a file that breaks it, so that a rule that stops looking is noticed.
func TestLayerRulesBite(t *testing.T) {
	file := func(pkg, name, body string) source {
		t.Helper()
		syntax, err := parser.ParseFile(token.NewFileSet(), name, body, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return source{pkg + "/" + name, pkg, strings.HasSuffix(name, "_test.go"), syntax}
	}
	tests := []struct {
		name    string
		file    source
		layer   bool // wanted: a problem of layers
		clock   bool // wanted: a problem of clocks
		because string
	}{
		{"down", file("core", "a.go", "package core\nimport _ \"felix/affinity\""), false, false, ""},
		{"up", file("core", "a.go", "package core\nimport _ \"felix/netio\""), true, false, "may import only [affinity]"},
		{"up in a test", file("core", "a_test.go", "package core\nimport _ \"felix/netio\""), false, false, ""},
		{"root from below", file("netio", "a.go", "package netio\nimport _ \"felix\""), true, false, "may import only"},
		{"command", file("core", "a_test.go", "package core\nimport _ \"felix/cmd/felixd\""), true, false, "nothing imports a command"},
		{"perf among each other", file("perf/ceiling", "a.go", "package ceiling\nimport _ \"felix/perf\""), false, false, ""},
		{"unknown package", file("util", "a.go", "package util"), true, false, "is not in the table"},
		{"clock", file("core", "a.go", "package core\nimport \"time\"\nvar _ = time.Now()"), false, true, "time.Now"},
		{"clock as a value", file("core", "a.go", "package core\nimport \"time\"\nvar now = time.Now"), false, true, "time.Now"},
		{"clock under another name", file("core", "a.go", "package core\nimport clock \"time\"\nvar _ = clock.Since(clock.Time{})"), false, true, "time.Since"},
		{"clock at the root", file("felix", "a.go", "package felix\nimport \"time\"\nvar _ = time.Now()"), false, false, ""},
		{"clock in a test", file("core", "a_test.go", "package core\nimport \"time\"\nvar _ = time.Now()"), false, false, ""},
		{"sleeping test", file("client", "a_test.go", "package client\nimport \"time\"\nfunc f() { time.Sleep(1) }"), false, true, "time.Sleep"},
	}
	for _, test := range tests {
		layer, clock := layerProblems([]source{test.file}), clockProblems([]source{test.file})
		if (len(layer) > 0) != test.layer || (len(clock) > 0) != test.clock {
			t.Errorf("%s: layer problems %q, clock problems %q", test.name, layer, clock)
		}
		if all := strings.Join(append(layer, clock...), "\n"); !strings.Contains(all, test.because) {
			t.Errorf("%s: problems %q do not say %q", test.name, all, test.because)
		}
	}
}
