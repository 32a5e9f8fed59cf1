package pages

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/inspect"
)

// button is a change that a page offers, for the template "button".
type button struct {
	Do     inspect.Do
	Label  string
	Reason *reason // why the caller may not make the change; nil: it may
	Danger bool
	Asks   bool        // a page asks first
	Fields [][2]string // hidden ones
	Inputs []input
	Back   string
}

// input is a field that the user fills.
type input struct{ Name, Label, Type, Value string }

// reason says why buttons of a page are disabled.
type reason struct{ ID, Text string }

// do returns a button. The parameters are the names and values of its fields; empty ones are left
// out.
func do(v *view, what inspect.Do, label string, params ...any) button {
	a := actions()[what]
	b := button{Do: what, Label: label, Back: v.Here(), Danger: a.danger}
	f := &fields{Values: make(url.Values)}
	for i := 0; i+1 < len(params); i += 2 {
		name, value := fmt.Sprint(params[i]), fmt.Sprint(params[i+1])
		if value != "" {
			f.Set(name, value)
			b.Fields = append(b.Fields, [2]string{name, value})
		}
	}
	if a.once {
		b.Fields = append(b.Fields, [2]string{"key", rand.Text()})
	}
	b.Asks = a.asks != nil && a.asks(f)
	if err := v.may(v.r, what, a.targetOf(f)); err != nil {
		b.Reason = v.reason(err.Error())
	}
	return b
}

// Unless returns the button, disabled if there is a reason.
func (v *view) Unless(b button, why string) button {
	if b.Reason == nil && why != "" {
		b.Reason = v.reason(why)
	}
	return b
}

// withInput returns the button with a further field, which the user fills or changes. value is its
// first text.
func withInput(b button, name, label, kind string, value any) button {
	b.Inputs = append(slices.Clone(b.Inputs), input{name, label, kind, fmt.Sprint(value)})
	return b
}

// reason notes why a button is disabled, for the end of the page.
func (v *view) reason(text string) *reason {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // a hash takes all
	r := reason{"why-" + strconv.FormatUint(uint64(h.Sum32()), 36), text}
	if !slices.Contains(v.Reasons, r) {
		v.Reasons = append(v.Reasons, r)
	}
	return &r
}

// act holds the data of the template act.html.
type act struct {
	Back   string
	Ask    *question       // nil: the change was made
	Change *inspect.Change // nil: it was not
}

// question asks before a change.
type question struct {
	Do     inspect.Do
	Label  string // of the button
	Danger bool
	Target string
	Kind   string     // of the target
	Count  *countText // nil: nothing is counted
	Typed  bool       // the target must be typed
	Wrong  bool       // another text was typed
	Fields [][2]string
	Edit   string // the text that may be edited; "": none
}

// countText is the number of things that would change.
type countText struct {
	N     int
	More  bool
	Bound int // one change has at most so many; 0: any number
}

// act makes the change of a form, or asks first.
func (p *Pages) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		code := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			code = http.StatusRequestEntityTooLarge
		}
		p.fail(w, r, code, &inspect.Error{Code: inspect.CodeInvalid, Text: "The form cannot be read"})
		return
	}
	f := &fields{Values: r.PostForm}
	what := inspect.Do(f.Get("do"))
	a, ok := actions()[what]
	if !ok {
		p.fail(w, r, http.StatusBadRequest, &inspect.Error{Code: inspect.CodeInvalid, Text: "There is no such change"})
		return
	}
	v := p.view(r, "act", a.title)
	data := act{Back: own(f.Get("back"))}
	v.Data = &data
	end := func(err error) {
		v.Error = inspect.Wrap(err)
		p.write(w, status(v.Error), "act", v)
	}
	target := a.targetOf(f)
	if target == "" {
		end(&inspect.Error{Code: inspect.CodeInvalid, Text: "The form does not say what is changed"})
		return
	}
	if err := p.c.May(r, what, target); err != nil {
		end(&inspect.Error{Code: inspect.CodeDenied, Text: "You may not do this: " + err.Error()})
		return
	}
	call := a.call(f, false)
	if f.err != nil {
		end(f.err)
		return
	}
	typed := a.typed != nil && a.typed(f)
	if a.asks != nil && a.asks(f) && (f.Get("confirmed") == "" || typed && f.text("typed") != target) {
		var err error
		data.Ask, err = p.question(r, what, &a, f, typed)
		if err != nil {
			data.Ask = nil
		}
		end(err)
		return
	}
	c, err := call(r.Context(), p.api.API)
	p.api.forget()
	if a.edit != nil && inspect.CodeOf(err) == inspect.CodeInvalid {
		q, _ := p.question(r, what, &a, f, typed) // without an error, since the text was edited
		data.Ask = q
		end(err)
		return
	}
	if err == nil || c.Done > 0 || len(c.Problems) > 0 || len(c.Nodes) > 0 {
		data.Change = &c
	}
	end(err)
}

// question returns the question before a change, with the number of things that would change.
func (p *Pages) question(r *http.Request, what inspect.Do, a *action, f *fields, typed bool) (*question, error) {
	kind, _, _ := strings.Cut(a.target, " ")
	q := &question{Do: what, Label: a.title, Danger: a.danger, Target: a.targetOf(f), Kind: kind, Typed: typed, Wrong: f.Get("confirmed") != ""}
	if a.counts {
		c, err := a.call(f, true)(r.Context(), p.api.API)
		if err != nil {
			return nil, err
		}
		q.Count = &countText{N: c.Done, More: c.More}
		if a.whole == nil || !a.whole(f) {
			q.Count.Bound = inspect.MaxBulk
		}
	}
	if a.edit != nil {
		var err error
		if q.Edit = f.Get("args"); q.Edit == "" {
			if q.Edit, err = a.edit(r.Context(), p.api.API, f); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		if name != "do" && name != "confirmed" && name != "typed" && name != "args" {
			q.Fields = append(q.Fields, [2]string{name, f.Get(name)})
		}
	}
	return q, nil
}

// own returns an address of one of the pages: text if it is one, and the overview otherwise.
func own(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return "./"
	}
	name := u.Path
	if !slices.ContainsFunc(pages(), func(one page) bool { return one.name == name }) {
		return "./"
	}
	if q := u.Query(); len(q) > 0 {
		return address(name) + "?" + q.Encode()
	}
	return address(name)
}
