package wire_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

type ordered struct {
	A        int
	UserName string
	Ratio    float64 `json:"rate,omitempty"`
	hidden   int
}

type tagged struct {
	To    string `celery:"0,recipient"`
	Tries int    `celery:"1,tries,optional"`
	Loud  bool   `celery:",loud,optional"`
	Skip  int    `celery:"-"`
}

type single struct{ Pair map[string]int }

// TestUnmarshalArgs binds calls of Python to variables.
func TestUnmarshalArgs(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		into any
		want any
	}{
		"by order":        {`[[1, "x", 2.5], {}]`, new(ordered), &ordered{A: 1, UserName: "x", Ratio: 2.5}},
		"by name":         {`[[], {"rate": 2, "a": 1, "user_name": "x"}]`, new(ordered), &ordered{A: 1, UserName: "x", Ratio: 2}},
		"mixed":           {`[[1], {"rate": 2, "user_name": "x"}]`, new(ordered), &ordered{A: 1, UserName: "x", Ratio: 2}},
		"tags":            {`[["a", 3], {"loud": true}]`, new(tagged), &tagged{To: "a", Tries: 3, Loud: true}},
		"optional":        {`[[], {"recipient": "a"}]`, new(tagged), &tagged{To: "a"}},
		"map in a struct": {`[[{"x": 1}], {}]`, new(single), &single{map[string]int{"x": 1}}},
		"one number":      {`[[9007199254740993], {}]`, new(int64), ptr(int64(9007199254740993))},
		"one list":        {`[[[1, 2]], {}]`, new([]int), &[]int{1, 2}},
		"one text":        {`[["é"], {}]`, new(string), ptr("é")},
		"a time":          {`[["2026-01-02T03:04:05Z"], {}]`, new(time.Time), ptr(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))},
		"no arguments":    {`[[], {}]`, new(task.None), new(task.None)},
		"empty":           {``, new(task.None), new(task.None)},
		"everything": {`[[1, 2.5, null], {"k": [true]}]`, new(wire.Args),
			&wire.Args{Args: []any{int64(1), 2.5, nil}, Kwargs: map[string]any{"k": []any{true}}}},
		"any of one":     {`[[7], {}]`, new(any), ptr(any(int64(7)))},
		"any of several": {`[[7, 8], {}]`, new(any), ptr(any(wire.Args{Args: []any{int64(7), int64(8)}, Kwargs: map[string]any{}}))},
		"a pointer":      {`[[1, "x", 1], {}]`, new(*ordered), ptr(&ordered{A: 1, UserName: "x", Ratio: 1})},
	} {
		if err := (wire.JSONArgs{}).Unmarshal([]byte(c.data), c.into); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, c.into, cmp.AllowUnexported(ordered{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// TestBadArgs names the argument that does not fit.
func TestBadArgs(t *testing.T) {
	type twice struct {
		A int `celery:"0,x"`
		B int `celery:"1,x"`
	}
	type gap struct {
		A int `celery:"1,x"`
	}
	type option struct {
		A int `celery:"0,x,often"`
	}
	for name, c := range map[string]struct {
		data string
		into any
		want error
		text string
	}{
		"missing":            {`[[1], {"rate": 1}]`, new(ordered), serializer.ErrValue, `"user_name" is missing`},
		"too many":           {`[[1, "x", 1, 2], {}]`, new(ordered), serializer.ErrValue, "4 positional arguments; the handler takes 3"},
		"unknown":            {`[[1, "x", 1], {"zz": 2}]`, new(ordered), serializer.ErrValue, `"zz"`},
		"twice":              {`[[1], {"a": 2, "user_name": "x"}]`, new(ordered), serializer.ErrValue, `"a" is given twice`},
		"type":               {`[["x", "x", 1], {}]`, new(ordered), serializer.ErrValue, `argument "a"`},
		"two for one":        {`[[1, 2], {}]`, new(int), serializer.ErrValue, "2 positional arguments"},
		"keyword for one":    {`[[1], {"a": 2}]`, new(int), serializer.ErrValue, `"a"`},
		"type of one":        {`[["x"], {}]`, new(int), serializer.ErrValue, "argument 0"},
		"no pointer":         {`[["x"], {}]`, 3, serializer.ErrValue, "pointer"},
		"two with a keyword": {`[[1, 2], {}]`, new(twice), serializer.ErrValue, "two fields"},
		"position":           {`[[1, 2], {}]`, new(gap), serializer.ErrValue, "positions"},
		"option":             {`[[1, 2], {}]`, new(option), serializer.ErrValue, "often"},
		"no pair":            {`[1]`, new(int), serializer.ErrMalformed, "list of two"},
		"no list":            {`[1, {}]`, new(int), serializer.ErrMalformed, "list"},
		"no map":             {`[[], []]`, new(int), serializer.ErrMalformed, "map"},
		"not JSON":           {`[[`, new(int), serializer.ErrMalformed, ""},
	} {
		err := wire.JSONArgs{}.Unmarshal([]byte(c.data), c.into)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
}

// TestMarshalArgs writes calls for Python.
func TestMarshalArgs(t *testing.T) {
	type inner struct {
		Whole float64 `json:"whole"`
		Left  int     `json:"left,omitempty"`
	}
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"struct":        {ordered{A: 1, UserName: "x", Ratio: 2, hidden: 1}, `[[1,"x",2.0],{}]`},
		"pointer":       {&ordered{}, `[[0,"",0.0],{}]`},
		"optional":      {tagged{To: "a", Skip: 3}, `[["a"],{}]`},
		"keyword only":  {tagged{To: "a", Tries: 2, Loud: true}, `[["a",2],{"loud":true}]`},
		"number":        {7, `[[7],{}]`},
		"float":         {1e3, `[[1000.0],{}]`},
		"large float":   {1e18, `[[1000000000000000000.0],{}]`},
		"larger float":  {-1e21, `[[-1e+21],{}]`},
		"list":          {[]float64{1, 1.5}, `[[[1.0,1.5]],{}]`},
		"nested":        {[]any{inner{Whole: 3}, map[string]float64{"b": 2, "a": 1}}, `[[[{"whole":3.0},{"a":1.0,"b":2.0}]],{}]`},
		"nothing":       {task.None{}, `[[],{}]`},
		"all":           {wire.Args{Args: []any{1, "x"}, Kwargs: map[string]any{"b": 2.0, "a": nil}}, `[[1,"x"],{"a":null,"b":2.0}]`},
		"no arguments":  {wire.Args{}, `[[],{}]`},
		"time":          {time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), `[["2026-01-02T03:04:05Z"],{}]`},
		"beyond 2**53":  {int64(9007199254740993), `[[9007199254740993],{}]`},
		"negative zero": {-0.5, `[[-0.5],{}]`},
	} {
		data, err := wire.JSONArgs{}.Marshal(c.value)
		if err != nil || string(data) != c.want {
			t.Errorf("%s: %s, %v, want %s", name, data, err, c.want)
		}
	}
	for name, v := range map[string]any{"bytes": []byte("x"), "inside": map[string]any{"a": []byte("x")}, "function": func() {}, "cycle": cyclic()} {
		if data, err := (wire.JSONArgs{}).Marshal(v); !errors.Is(err, serializer.ErrValue) {
			t.Errorf("%s: %s, %v, want ErrValue", name, data, err)
		}
	}
}

// cyclic returns a value that contains itself.
func cyclic() any {
	m := map[string]any{}
	m["m"] = m
	return m
}

// TestMsgpackArgs carries bytes, and binds as JSON does.
func TestMsgpackArgs(t *testing.T) {
	type blob struct {
		Data  []byte `celery:"0,data"`
		Count int    `celery:"1,count,optional"`
	}
	s := wire.MsgpackArgs{}
	data, err := s.Marshal(blob{Data: []byte("\x00\xff")})
	if err != nil || string(data) != "\x92\x91\xc4\x02\x00\xff\x80" {
		t.Fatalf("%x, %v", data, err)
	}
	var got blob
	if err := s.Unmarshal(data, &got); err != nil || string(got.Data) != "\x00\xff" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Unmarshal([]byte("\x92\x90\x82\xa1a\x01\xa1a\x02"), &got); !errors.Is(err, serializer.ErrMalformed) {
		t.Errorf("a keyword twice: %v, want ErrMalformed", err)
	}
	if err := s.Unmarshal([]byte("\x93\x90\x80\xc0"), &got); !errors.Is(err, serializer.ErrMalformed) {
		t.Errorf("three parts: %v, want ErrMalformed", err)
	}
}

// TestPrepend gives a step the result before it, and an error task the id of the failed one.
func TestPrepend(t *testing.T) {
	for name, c := range map[string]struct {
		s    serializer.Serializer
		args string
		want string
		fail string
	}{
		"JSON":    {wire.JSONArgs{}, `[[1], {"k": 2.0}]`, `[[9007199254740993,1],{"k":2.0}]`, `[["id-1",1],{"k":2.0}]`},
		"nothing": {wire.JSONArgs{}, ``, `[[9007199254740993],{}]`, `[["id-1"],{}]`},
		"msgpack": {wire.MsgpackArgs{}, "\x92\x91\x01\x80", "\x92\x92\xcf\x00\x20\x00\x00\x00\x00\x00\x01\x01\x80", "\x92\x92\xa4id-1\x01\x80"},
	} {
		composer := c.s.(serializer.Composer)
		got, err := composer.Prepend([]byte(c.args), uint64(9007199254740993))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
		got, err = composer.PrependFailure([]byte(c.args), task.Failure{ID: "id-1", Message: "m"})
		if err != nil || string(got) != c.fail {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.fail)
		}
		if _, err := composer.Prepend([]byte(c.args+"x"), 1); c.args != "" && !errors.Is(err, serializer.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

// TestPrependNumbers shows that the numbers of a JSON result stay numbers in msgpack.
func TestPrependNumbers(t *testing.T) {
	s := wire.MsgpackArgs{}
	value := []any{json.Number("9007199254740993"), map[string]any{"k": json.Number("2.0")}}
	args, err := s.Prepend(nil, value)
	if err != nil {
		t.Fatal(err)
	}
	var got wire.Args
	if err := s.Unmarshal(args, &got); err != nil {
		t.Fatal(err)
	}
	want := []any{[]any{uint64(9007199254740993), map[string]any{"k": 2.0}}}
	if diff := cmp.Diff(want, got.Args); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, number := range []json.Number{"18446744073709551616", "1e999"} {
		if args, err := s.Prepend(nil, number); !errors.Is(err, serializer.ErrValue) {
			t.Errorf("%s: %x, %v, want ErrValue", number, args, err)
		}
	}
}

// TestJSONValues shows how results are written.
func TestJSONValues(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{2.0, `2.0`}, {[]any{1, 1e18, "é"}, `[1,1000000000000000000.0,"é"]`}, {nil, `null`}, {[]byte("x"), `"eA=="`},
	} {
		data, err := wire.JSONValues{}.Marshal(c.value)
		if err != nil || string(data) != c.want {
			t.Errorf("%v: %s, %v, want %s", c.value, data, err, c.want)
		}
	}
	if data, err := (wire.JSONValues{}).Marshal(func() {}); !errors.Is(err, serializer.ErrValue) {
		t.Errorf("%s, %v, want ErrValue", data, err)
	}
}
