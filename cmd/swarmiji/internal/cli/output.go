package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// Table is the output of a command as rows.
type Table struct {
	Head []string
	Rows [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Cell(c)
	}
	t.Rows = append(t.Rows, row)
}

// Cell is a value of a table. It is made visible, so that foreign text cannot break the table or
// move the cursor.
func Cell(v any) string {
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
	if s = Visible(s); s == "" {
		return "-"
	}
	return s
}

// Visible replaces line breaks and characters that are not printable.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			return '.'
		}
		return r
	}, s)
}

// Show prints v as JSON or t as a table, as -o selects.
func (a *App) Show(v any, t *Table) error {
	switch a.Output {
	case "json":
		return a.JSON(v)
	case "csv":
		w := csv.NewWriter(a.Stdout)
		return w.WriteAll(append([][]string{t.Head}, t.Rows...))
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Say prints a remark to stderr.
func (a *App) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stderr, "swarmiji: "+format+"\n", args...)
}

// JSON prints v as indented JSON.
func (a *App) JSON(v any) error {
	e := json.NewEncoder(a.Stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Compact returns v as JSON on one line.
func Compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// maxCell limits the characters of a text in a list.
const maxCell = 60

// Cut shortens a text for a column.
func Cut(text string) string {
	if r := []rune(text); len(r) > maxCell {
		return string(r[:maxCell-3]) + "..."
	}
	return text
}
