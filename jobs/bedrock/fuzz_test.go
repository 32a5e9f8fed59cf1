package bedrock

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzReader shows that any input, in any pieces, is read in the same way, without a panic and
// within the limits.
func FuzzReader(f *testing.F) {
	for _, in := range []string{
		"GetJob\nname: foo\n\n", "GetJob\r\nname: foo\r\n\r\nPing\r\n\r\n", "A\n\rb: c\n\r\n\r", "A\rb: c\r\r", "A\nb: c\n d\n\n",
		"A\nb: \\u0041\\ud83d\\ude00\\n\\\\\n\n", "A\r\nContent-Length: 3\r\n\r\nabcB\n\n", "A\nTransfer-Encoding: chunked\n\n3;x\nabc\n0\ny: z\n\nB\n\n",
		"\n\n \n", "A\nContent-Length: 99999999999999999999\n\n", "A\n: b\nc\n\n",
	} {
		f.Add([]byte(in), uint8(1), uint8(7))
	}
	limit := limits{head: 4 << 10, body: 4 << 10}
	f.Fuzz(func(t *testing.T, in []byte, a, b uint8) {
		whole, rd, err := readAll(bytes.NewReader(in), limit)
		parts, rd2, err2 := readAll(&pieces{in: in, sizes: []int{int(a), int(b), 1}}, limit)
		if diff := cmp.Diff(whole, parts); diff != "" {
			t.Errorf("in pieces it is another request:\n%s", diff)
		}
		if err.Error() != err2.Error() {
			t.Errorf("%v, in pieces %v", err, err2)
		}
		if len(rd.buf) > 32<<10 || len(rd2.buf) > 32<<10 {
			t.Errorf("buffers of %d and %d bytes", len(rd.buf), len(rd2.buf))
		}
	})
}

// FuzzCompose shows that a composed request is read unchanged.
func FuzzCompose(f *testing.F) {
	f.Add("CreateJob", "name", "foo", "data", `{"a":"\\\n"}`, "body")
	f.Add("CreateJob", "name", " \t x \r\n", "data", "\\", "\r\n\r\n")
	f.Fuzz(func(t *testing.T, line, n1, v1, n2, v2, body string) {
		line = strings.Trim(line, " \t")
		if line == "" || strings.ContainsAny(line, "\r\n") || len(line) > 1000 {
			return // not a valid line
		}
		for _, n := range []string{n1, n2} {
			if n == "" || strings.Trim(n, " \t") != n || strings.ContainsAny(n, "\r\n:") || len(n) > 1000 ||
				same([]byte(n), "content-length") || same([]byte(n), "transfer-encoding") {
				return // not a valid header
			}
		}
		if len(v1)+len(v2)+len(body) > 4<<10 {
			return // beyond the limits of this target
		}
		in := compose(nil, line, [][2]string{{n1, v1}, {n2, v2}}, body)
		rd := newReader(bytes.NewReader(append(in, "B\n\n"...)), some)
		var req request
		if err := rd.next(&req); err != nil {
			t.Fatalf("%v\n%q", err, in)
		}
		if string(req.line) != line || string(req.headers[0].name) != n1 || string(req.headers[0].value) != v1 ||
			string(req.headers[1].name) != n2 || string(req.headers[1].value) != v2 || string(req.body) != body {
			t.Errorf("%q\n%q: %q, %q: %q, %q", in, n1, v1, n2, v2, body)
			t.Errorf("%q %q %q", req.line, req.headers, req.body)
		}
		rd.done(&req)
		if err := rd.next(&req); err != nil || string(req.line) != "B" {
			t.Errorf("the next one: %q, %v", req.line, err)
		}
		rd.done(&req)
		if err := rd.next(&req); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

// FuzzValue shows that every text becomes valid JSON.
func FuzzValue(f *testing.F) {
	for _, s := range []string{"", "0", "-0", "007", "12", "-5", "1.5", "true", "null", "{}", "{", `{"a":1}`, "[1,2]", "[1,", "a\x00\xff\"\\\u2028", "9223372036854775808"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := appendValue(nil, s)
		if !json.Valid(out) {
			t.Fatalf("%q is no JSON", out)
		}
		var v any
		if err := json.Unmarshal(out, &v); err != nil {
			t.Fatal(err)
		}
		if got, ok := v.(string); ok && utf8.ValidString(s) && got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// FuzzObjects shows that lists are split in the same way as by encoding/json.
func FuzzObjects(f *testing.F) {
	for _, s := range []string{
		`[{"name":"a"}]`, " [ { \"a\" : 1 , \"b\":[1,{\"c\":\"]}\"}], \"\\u0041\\\"\": \"\\n\" } ,{\"a\":null}]\n", `[]`, `[{}]`, `[1]`, `[null]`, `null`,
		`{"a":{}}`, `[{"a":1,"a":2}]`, "[{\"\xff\":\"\xff\"}]", `[{"a":-1.5e3},{"b":true}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want []map[string]json.RawMessage
		valid := json.Unmarshal([]byte(s), &want) == nil && len(want) > 0
		for _, object := range want {
			valid = valid && len(object) > 0
		}
		n, all, err := objects([]byte(s))
		if err != nil {
			if valid && len(want) <= maxJobs && errors.Is(err, errInvalidJSON) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if !valid || n != len(want) {
			t.Fatalf("%q: %d objects", s, n)
		}
		i := 0
		for object := range all {
			got := map[string]string{}
			for _, h := range object.headers {
				got[string(h.name)] = string(h.value)
			}
			told := map[string]string{}
			for name, value := range want[i] {
				var text string
				switch {
				case string(value) == "null":
				case json.Unmarshal(value, &text) == nil:
				default:
					text = string(value)
				}
				told[name] = text
			}
			if diff := cmp.Diff(told, got); diff != "" {
				t.Errorf("%q: %s", s, diff)
			}
			i++
		}
	})
}

// script is a connection with a given input that records its output.
type script struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// FuzzCommands shows that every request gets an answer in the form of the protocol, with a known
// status.
func FuzzCommands(f *testing.F) {
	for _, steps := range conversations() {
		var all strings.Builder
		for _, s := range steps {
			all.WriteString(s.ask)
		}
		if all.Len() < maxAhead {
			f.Add(all.String())
		}
	}
	f.Add("GetJob\nname: *\nConnection: wait\n\nCreateJob\nname: a\nConnection: forget\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > maxAhead {
			return // the end of the input would not end a wait
		}
		s, err := New(Config{Service: service(t), Logger: slog.New(slog.DiscardHandler), MaxHeader: 16 << 10, MaxBody: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		requests, _, _ := readAll(strings.NewReader(in), limits{head: 16 << 10, body: 16 << 10})
		nc := &script{in: strings.NewReader(in)}
		newConn(s, nc).serve(t.Context())
		c := &client{t: t, in: bufio.NewReader(&nc.out)}
		n := 0
		for {
			a, err := c.receive()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v\n%q", err, nc.out.String())
			}
			n++
			switch code, _, _ := strings.Cut(a.Status, " "); code {
			case "200", "202", "303", "400", "401", "402", "404", "405", "408", "413", "430", "503", "555":
			default:
				t.Errorf("status %q", a.Status)
			}
			if a.Body != "" && !json.Valid([]byte(a.Body)) {
				t.Errorf("no JSON: %q", a.Body)
			}
			if len(a.Headers) > 0 {
				break // Connection: close
			}
		}
		if n > len(requests)+1 {
			t.Errorf("%d answers to %d requests", n, len(requests))
		}
	})
}
