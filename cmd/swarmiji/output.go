package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
)

// table is the output of a command as rows.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cell(c)
	}
	t.rows = append(t.rows, row)
}

// cell is a value of a table. It is made visible, so that foreign text cannot break the table or
// move the cursor.
func cell(v any) string {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case time.Time:
		if !v.IsZero() {
			s = v.UTC().Format("2006-01-02 15:04:05.000Z")
		}
	case []string:
		s = strings.Join(v, ",")
	case float64:
		s = strconv.FormatFloat(v, 'f', 2, 64)
	default:
		s = fmt.Sprint(v)
	}
	if s = visible(s); s == "" {
		return "-"
	}
	return s
}

// visible replaces line breaks and characters that are not printable.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			return '.'
		}
		return r
	}, s)
}

// show prints v as JSON or t as a table, as -o selects.
func (a *app) show(v any, t *table) error {
	switch a.output {
	case "json":
		return a.json(v)
	case "csv":
		w := csv.NewWriter(a.stdout)
		return w.WriteAll(append([][]string{t.head}, t.rows...))
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// say prints a remark to stderr.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, "swarmiji: "+format+"\n", args...)
}

// json prints v as indented JSON.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// compact returns v as JSON on one line.
func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// readable returns serialized bytes as a value for JSON: raw bytes as text if they are text,
// otherwise in base64.
func readable(contentType string, data []byte) (any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	set, err := serializer.NewSet(msgpack.Serializer{}, serializer.JSON{}, serializer.Raw{})
	if err != nil {
		return nil, err
	}
	s, err := set.For(contentType)
	if err != nil {
		return nil, err
	}
	switch s.ContentType() {
	case serializer.ContentJSON:
		return json.RawMessage(data), nil
	case serializer.ContentRaw:
		if utf8.Valid(data) {
			return string(data), nil
		}
		return data, nil
	}
	var v any
	if err := s.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return v, nil
}

// maxCell limits the characters of a text in a list.
const maxCell = 60

// cut shortens a text for a column.
func cut(text string) string {
	if r := []rune(text); len(r) > maxCell {
		return string(r[:maxCell-3]) + "..."
	}
	return text
}
