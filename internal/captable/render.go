package captable

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const head = `# What the adapters can do

The conformance suites write this page (` + "`make capabilities`" + `): it shows tests on real servers, not
intentions. Each adapter has passed every case of its port's suite that applies to it. In the rows
"cases", *all* means every case of that area. With *some* a note says why the others do not apply.
The files in [capabilities](capabilities) name them. The doc comments of ` + "`brokertest.Promises`" + `,
` + "`resultstoretest.Promises` and `events.Retainer`" + ` explain each promise.
`

// Render returns the page for the reports. The error names the promises or reasons for which this
// package has no text.
func Render(adapters []Adapter) ([]byte, error) {
	var b strings.Builder
	b.WriteString(head)
	for _, p := range ports {
		var columns []Adapter
		for _, a := range adapters {
			if a.Port == p.name {
				columns = append(columns, a)
			}
		}
		if len(columns) == 0 {
			continue
		}
		slices.SortStableFunc(columns, func(a, b Adapter) int { return rank(a.Name) - rank(b.Name) })
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", p.title, p.text)
		if err := table(&b, p.name, columns); err != nil {
			return nil, err
		}
	}
	return []byte(b.String()), nil
}

// Check compares the page with the rendered reports of dir. With update it writes the page instead.
func Check(page, dir string, update bool) error {
	as, err := Read(dir)
	if err != nil {
		return err
	}
	got, err := Render(as)
	if err != nil {
		return err
	}
	return check(page, got, update)
}

func rank(adapter string) int {
	if i := slices.Index(order, adapter); i >= 0 {
		return i
	}
	return len(order)
}

func table(b *strings.Builder, port string, columns []Adapter) error {
	row := func(title string, cell func(a *Adapter) string) {
		b.WriteString("| " + title + " |")
		for i := range columns {
			b.WriteString(" " + cell(&columns[i]) + " |")
		}
		b.WriteString("\n")
	}
	row("", func(a *Adapter) string { return a.Name })
	b.WriteString("|---" + strings.Repeat("|---", len(columns)) + "|\n")
	for _, name := range names(columns, func(r *Report) []Promise { return r.Promises }, func(p Promise) string { return p.Name }) {
		title, ok := words[port+"."+name]
		if !ok {
			return fmt.Errorf("captable: the promise %s of the port %s has no words; put them into words.go", name, port)
		}
		row(title, func(a *Adapter) string { return a.value(name) })
	}
	var n notes
	for _, name := range names(columns, func(r *Report) []Area { return r.Areas }, func(a Area) string { return a.Name }) {
		row("*cases:* "+cmp.Or(areas[name], name), func(a *Adapter) string { return a.cases(name, &n) })
	}
	n.write(b)
	return nil
}

// names returns the names of the promises or areas of all reports, without duplicates. The order is
// that of the first report that has them.
func names[T any](columns []Adapter, list func(*Report) []T, name func(T) string) []string {
	var all []string
	for i := range columns {
		at := 0
		for _, v := range list(&columns[i].Report) {
			if j := slices.Index(all, name(v)); j >= 0 {
				at = j + 1
				continue
			}
			all = slices.Insert(all, at, name(v))
			at++
		}
	}
	return all
}

func (a *Adapter) value(promise string) string {
	i := slices.IndexFunc(a.Promises, func(p Promise) bool { return p.Name == promise })
	if i < 0 || a.Promises[i].Value == No {
		return "–"
	}
	v := a.Promises[i].Value
	if limit, ok := limits[a.Port+"."+a.Name+"."+promise]; ok {
		return limit
	}
	if n, err := strconv.Atoi(v); err == nil {
		return size(n)
	}
	if d, err := time.ParseDuration(v); err == nil {
		return d.String()
	}
	return v
}

func size(n int) string {
	for _, u := range []struct {
		n    int
		name string
	}{{1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.n && n%u.n == 0 {
			return fmt.Sprintf("%d %s", n/u.n, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

func (a *Adapter) cases(area string, n *notes) string {
	i := slices.IndexFunc(a.Areas, func(x Area) bool { return x.Name == area })
	if i < 0 {
		return "–"
	}
	x := a.Areas[i]
	if len(x.Skipped) == 0 {
		return "all"
	}
	text := "some"
	if !x.Passed {
		text = "–"
	}
	seen := make(map[int]bool)
	for _, s := range x.Skipped {
		if i := n.number(s.Reason); !seen[i] {
			seen[i] = true
			text += fmt.Sprintf(" [%d]", i)
		}
	}
	return text
}

// notes holds the reasons below a table, each once.
type notes struct{ texts []string }

func (n *notes) number(text string) int {
	if i := slices.Index(n.texts, text); i >= 0 {
		return i + 1
	}
	n.texts = append(n.texts, text)
	return len(n.texts)
}

func (n *notes) write(b *strings.Builder) {
	if len(n.texts) == 0 {
		return
	}
	b.WriteString("\n")
	for i, t := range n.texts {
		if w, ok := reasons[t]; ok {
			t = w
		}
		fmt.Fprintf(b, "- [%d] %s\n", i+1, t)
	}
}
