package wire

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	lib "github.com/vmihailenco/msgpack/v5"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// parameter is a field of a struct that takes one argument.
type parameter struct {
	field    int
	position int // -1: keyword only
	keyword  string
	optional bool
}

// name returns the name of the parameter in error texts.
func (p *parameter) name() string { return shown(p.keyword) }

// parameters are the parameters of a struct: first those with a position, in its order.
type parameters []parameter

// parametersOf returns the parameters of the struct type t. Returns an error for a tag that is not
// valid, and for two fields with one position or keyword.
func parametersOf(t reflect.Type) (parameters, error) {
	p, err := readParameters(t)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	return p, nil
}

// readParameters does the work of parametersOf.
func readParameters(t reflect.Type) (parameters, error) {
	var all parameters
	next := 0
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("celery")
		if !f.IsExported() || tag == "-" {
			continue
		}
		p := parameter{field: i, position: next, keyword: keywordOf(&f)}
		if tagged {
			if err := p.readTag(tag); err != nil {
				return nil, fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
		next = max(next, p.position+1)
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b parameter) int { return order(a.position) - order(b.position) })
	keywords := map[string]bool{}
	for i, p := range all {
		if keywords[p.keyword] {
			return nil, fmt.Errorf("two fields have the keyword %q", p.keyword)
		}
		keywords[p.keyword] = true
		if p.position >= 0 && p.position != i {
			return nil, fmt.Errorf("the positions are not 0, 1, 2: field %q has %d", p.keyword, p.position)
		}
	}
	return all, nil
}

// order sorts parameters without a position last.
func order(position int) int {
	if position < 0 {
		return 1 << 20
	}
	return position
}

// readTag sets p from the tag of its field: position, keyword and options.
func (p *parameter) readTag(tag string) error {
	parts := strings.Split(tag, ",")
	p.position = -1
	if parts[0] != "" {
		n, err := strconv.Atoi(parts[0])
		if err != nil || n < 0 || n > 1000 {
			return fmt.Errorf("the position %q in the tag is not a number", parts[0])
		}
		p.position = n
	}
	if len(parts) > 1 && parts[1] != "" {
		p.keyword = parts[1]
	}
	for _, option := range parts[min(2, len(parts)):] {
		if option != "optional" {
			return fmt.Errorf("the tag has the unknown option %q", option)
		}
		p.optional = true
	}
	return nil
}

// keywordOf returns the keyword of a field without one in its tag: the name in its json tag, or
// else its name in snake case.
func keywordOf(f *reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
		return name
	}
	var b strings.Builder
	runes := []rune(f.Name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// read sets the fields of target from the arguments of the call. After an error, some fields may be
// set.
func (ps parameters) read(c coding, made *call, target reflect.Value) error {
	left := make(map[string][]byte, len(made.kwargs))
	for _, m := range made.kwargs {
		left[m.name] = m.value
	}
	taken := 0
	for i := range ps {
		p := &ps[i]
		data, named := left[p.keyword]
		delete(left, p.keyword)
		if p.position >= 0 && p.position < len(made.args) {
			if named {
				return fmt.Errorf("argument %s is given twice, by position and by keyword", p.name())
			}
			data = made.args[p.position]
			taken++
		}
		if data == nil {
			if !p.optional {
				return fmt.Errorf("argument %s is missing", p.name())
			}
			continue
		}
		if err := c.decode(data, target.Field(p.field).Addr().Interface()); err != nil {
			return fmt.Errorf("argument %s: %w", p.name(), err)
		}
	}
	if taken < len(made.args) {
		return fmt.Errorf("%d positional arguments; the handler takes %d", len(made.args), taken)
	}
	for _, name := range sortedKeys(left) {
		return fmt.Errorf("unexpected keyword argument %s", shown(name))
	}
	return nil
}

// write adds the fields of value to the arguments of a call. Optional fields with the zero value
// are left out, and the positions behind them become keywords.
func (ps parameters) write(c coding, value reflect.Value, made *call) error {
	for i := range ps {
		p := &ps[i]
		field := value.Field(p.field)
		if p.optional && field.IsZero() {
			continue
		}
		data, err := c.encode(field.Interface())
		if err != nil {
			return fmt.Errorf("argument %s: %w", p.name(), err)
		}
		if p.position == len(made.args) && len(made.kwargs) == 0 {
			made.args = append(made.args, data)
			continue
		}
		made.kwargs = append(made.kwargs, member{p.keyword, data})
	}
	return nil
}

// isParameters reports whether a variable of type t takes one argument for each field.
func isParameters(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[Args]() && !decodesItself(t)
}

// decodesItself reports whether values of t are decoded by a method of t.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) ||
		p.Implements(reflect.TypeFor[lib.CustomDecoder]()) || p.Implements(reflect.TypeFor[lib.Unmarshaler]())
}

// sortedKeys returns the keys of m in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// shown returns a name from outside in the form of an error text.
func shown(name string) string { return strconv.Quote(utf.Cut(name, 64)) }

// errType is the error of a header or an option of a wrong type.
var errType = errors.New("wrong type")
