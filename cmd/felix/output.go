package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// printJSON writes one value on a line of its own.
func (a *app) printJSON(value any) error { return newJSONEncoder(a.stdout).Encode(value) }

// newJSONEncoder makes an encoder that leaves < > & as they are: what it writes goes to terminals and files, not into pages.
func newJSONEncoder(w io.Writer) *json.Encoder {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder
}

// printTable writes rows in columns, with a heading unless head is empty.
func printTable(w io.Writer, head []string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(head) > 0 {
		fmt.Fprintln(table, strings.Join(head, "\t"))
	}
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// count is a number of things with its noun: "1 record", "200,000 records".
func count(n int, noun string) string { return countOf(n, noun, noun+"s") }

// countOf is count of a noun with a plural of its own.
func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(int64(n)) + " " + many
}

// bytesText is a size for people.
func bytesText(n int64) string { return humanize.IBytes(uint64(n)) }

// durationText is a duration for people: three digits that count.
func durationText(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.3g us", float64(d)/float64(time.Microsecond))
}

// record is the JSON of a record that was received. Payload is text; one that is no UTF-8 goes into PayloadBase64.
type record struct {
	Stream        string  `json:"stream"`
	Shard         uint32  `json:"shard"`
	Offset        uint64  `json:"offset"`
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
}

func newRecord(stream string, shard uint32, offset uint64, payload []byte) record {
	r := record{Stream: stream, Shard: shard, Offset: offset}
	if utf8.Valid(payload) {
		text := string(payload)
		r.Payload = &text
	} else {
		r.PayloadBase64 = payload
	}
	return r
}
