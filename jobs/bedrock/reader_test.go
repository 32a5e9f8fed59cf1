package bedrock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// read is a request in the form that tests compare.
type read struct {
	Line    string
	Headers map[string]string
	Body    string
}

// readAll reads requests until an error.
func readAll(src io.Reader, limit limits) (all []read, rd *reader, err error) {
	rd = newReader(src, limit)
	for {
		var req request
		if err := rd.next(&req); err != nil {
			return all, rd, err
		}
		one := read{Line: string(req.line), Headers: map[string]string{}, Body: string(req.body)}
		for _, h := range req.headers {
			one.Headers[strings.ToLower(string(h.name))] = string(h.value)
		}
		all = append(all, one)
		rd.done(&req)
	}
}

var some = limits{head: 64 << 10, body: 64 << 10}

// TestReader shows how requests are read.
// Promises: B20, B21, B22.
func TestReader(t *testing.T) {
	foo := read{Line: "GetJob", Headers: map[string]string{"name": "foo"}}
	with := func(body string) read {
		return read{Line: "GetJob", Headers: map[string]string{"content-length": fmt.Sprint(len(body))}, Body: body}
	}
	name := func(value string) read { return read{Line: "A", Headers: map[string]string{"name": value}} }
	for _, c := range []struct {
		name, in string
		want     []read
		err      error // nil: io.EOF
	}{
		{"nothing", "", nil, nil},
		{"blank lines only", "\r\n\n\n\r\r\r\n", nil, nil},
		{"no headers", "Ping\n\n", []read{{Line: "Ping", Headers: map[string]string{}}}, nil},
		{"LF", "GetJob\nname: foo\n\n", []read{foo}, nil},
		{"CRLF", "GetJob\r\nname: foo\r\n\r\n", []read{foo}, nil},
		{"LFCR", "GetJob\n\rname: foo\n\r\n\r", []read{foo}, nil},
		{"CR", "GetJob\rname: foo\r\r", []read{foo}, nil},
		{"mixed", "GetJob\r\nname: foo\n\r\n", []read{foo}, nil},
		{"two, LF", "GetJob\nname: foo\n\nGetJob\nname: foo\n\n", []read{foo, foo}, nil},
		{"two, CRLF", "GetJob\r\nname: foo\r\n\r\nGetJob\r\nname: foo\r\n\r\n", []read{foo, foo}, nil},
		{"two, LFCR", "GetJob\n\rname: foo\n\r\n\rGetJob\n\rname: foo\n\r\n\r", []read{foo, foo}, nil},
		{"two, CR", "GetJob\rname: foo\r\rGetJob\rname: foo\r\r", []read{foo, foo}, nil},
		{"leading blank lines", "\n\r\n \t\r\n\nGetJob\nname: foo\n\n\n\nGetJob\nname: foo\n\n", []read{foo, foo}, nil},
		{"blanks around", "  GetJob \nname \t:\t  foo  \n\n", []read{foo}, nil},
		{"last one wins", "GetJob\nname: bar\nNAME: foo\n\n", []read{foo}, nil},
		{"lines that say nothing", "GetJob\nfoo\n: x\n y\nname: foo\n\n", []read{foo}, nil},
		{"a colon in the value", "A\nname: a: b:c\n\n", []read{name("a: b:c")}, nil},
		{"continued", "A\nname: a \n  b\n\tc \n\n", []read{name("a  b\tc")}, nil},
		{"continued, CRLF", "A\r\nname: a\r\n b\r\n\r\n", []read{name("a b")}, nil},
		{"continued, from nothing", "A\nname:\n b\n\n", []read{name(" b")}, nil},
		{"continues the method line", "A\n b\nname: a\n\n", []read{name("a")}, nil},
		{"continued, escaped", "A\nname: \\t\n \\n\\\n\n", []read{name("\t \n\\")}, nil},
		{
			"escaped", `A` + "\n" + `name: \b\f\n\r\t\u0041\\\"\/\x\u00e9\u20ac\ud83d\ude00\ud83d.\u12` + "\n\n",
			[]read{name("\b\f\n\r\tA\\\"/xé€😀\ufffd.u12")},
			nil,
		},
		{"a backslash at the end", "A\nname: a\\\n\n", []read{name("a\\")}, nil},
		{"body, LF", "GetJob\nContent-Length: 3\n\nabc", []read{with("abc")}, nil},
		{"body, CRLF", "GetJob\r\nContent-Length: 3\r\n\r\nabc", []read{with("abc")}, nil},
		{"body, LFCR", "GetJob\n\rContent-Length: 3\n\r\n\rabc", []read{with("abc")}, nil},
		{"body, CR", "GetJob\rContent-Length: 3\r\rabc", []read{with("abc")}, nil},
		{"body of ends, LF", "GetJob\nContent-Length: 3\n\n\r\n\r", []read{with("\r\n\r")}, nil},
		{"body of ends, CRLF", "GetJob\r\nContent-Length: 3\r\n\r\n\n\r\nGetJob\r\nContent-Length: 1\r\n\r\nx", []read{with("\n\r\n"), with("x")}, nil},
		{"no length, no body", "GetJob\nname: foo\n\nGetJob\nname: foo\n\n{}", []read{foo, foo}, errIncomplete},
		{
			"length 0", "GetJob\nContent-Length: 0\nname: foo\n\nGetJob\nname: foo\n\n",
			[]read{{Line: "GetJob", Headers: map[string]string{"name": "foo", "content-length": "0"}}, foo},
			nil,
		},
		{"cut in the method", "GetJ", nil, errIncomplete},
		{"cut in the headers", "GetJob\nname: foo\n", nil, errIncomplete},
		{"cut in the body", "GetJob\nContent-Length: 3\n\nab", nil, errIncomplete},
		{"cut before the body", "GetJob\r\nContent-Length: 3\r\n\r\n", nil, errIncomplete},
		{"negative length", "GetJob\nContent-Length: -1\n\n", nil, errLength},
		{"length +1", "GetJob\nContent-Length: +1\n\n", nil, errLength},
		{"length 1e3", "GetJob\nContent-Length: 1e3\n\n", nil, errLength},
		{"length 2^64+1", "GetJob\nContent-Length: 18446744073709551617\n\n", nil, errLength},
		{"large body", "GetJob\nContent-Length: 65537\n\n", nil, errBodySize},
		{"huge body", "GetJob\nContent-Length: 999999999999999999\n\n", nil, errBodySize},
		{"long method", strings.Repeat("A", maxLine+1) + "\n\n", nil, errHeadSize},
		{"long header", "A\nname: " + strings.Repeat("a", some.head) + "\n\n", nil, errHeadSize},
		{"many headers", "A\n" + strings.Repeat("a:\n", maxHeaders+1) + "\n", nil, errHeadSize},
		{
			"chunks", "A\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nx: y\r\n\r\nGetJob\nname: foo\n\n",
			[]read{{Line: "A", Headers: map[string]string{"transfer-encoding": "chunked"}, Body: "abc0123456789"}, foo},
			nil,
		},
		{
			"chunks, LF", "A\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\nGetJob\nname: foo\n\n",
			[]read{{Line: "A", Headers: map[string]string{"transfer-encoding": "chunked"}, Body: "abc"}, foo},
			nil,
		},
		{"no chunks", "A\nTransfer-Encoding: chunked\n\n0\n\n", []read{{Line: "A", Headers: map[string]string{"transfer-encoding": "chunked"}}}, nil},
		{"bad chunk", "A\nTransfer-Encoding: chunked\n\nx\n\n", nil, errChunk},
		{"chunk without its end", "A\nTransfer-Encoding: chunked\n\n3\nabcd\n0\n\n", nil, errChunk},
		{"cut chunk", "A\nTransfer-Encoding: chunked\n\n3\nab", nil, errIncomplete},
		{"large chunk", "A\nTransfer-Encoding: chunked\n\nffffffff\n", nil, errBodySize},
		{"long chunk line", "A\nTransfer-Encoding: chunked\n\n1;" + strings.Repeat("a", 2*maxTrailer) + "\na\n0\n\n", nil, errChunk},
		{"long trailer", "A\nTransfer-Encoding: chunked\n\n0\n" + strings.Repeat("a: b\n", maxTrailer) + "\n", nil, errChunk},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.err == nil {
				c.err = io.EOF
			}
			for how, src := range map[string]io.Reader{
				"at once":     strings.NewReader(c.in),
				"byte":        iotest.OneByteReader(strings.NewReader(c.in)),
				"half":        iotest.HalfReader(strings.NewReader(c.in)),
				"with error":  iotest.DataErrReader(strings.NewReader(c.in)),
				"three bytes": &pieces{in: []byte(c.in), sizes: []int{3}},
			} {
				got, rd, err := readAll(src, some)
				if !errors.Is(err, c.err) {
					t.Errorf("%s: error %v, want %v", how, err, c.err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", how, diff)
				}
				if n := len(rd.buf); n > 2*(some.head+some.body) {
					t.Errorf("%s: a buffer of %d bytes", how, n)
				}
			}
		})
	}
}

// pieces is a stream that returns pieces of these sizes, repeatedly.
type pieces struct {
	in    []byte
	sizes []int
	i     int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.in) == 0 {
		return 0, io.EOF
	}
	size := max(p.sizes[p.i%len(p.sizes)], 1)
	p.i++
	n := copy(b, p.in[:min(size, len(p.in))])
	p.in = p.in[n:]
	return n, nil
}

// endless is a request without an end that counts the bytes read.
type endless struct {
	begin, more string
	taken       int
}

func (e *endless) Read(b []byte) (n int, err error) {
	if e.begin != "" {
		n = copy(b, e.begin)
		e.begin = e.begin[n:]
		return n, nil
	}
	for n < len(b) {
		k := copy(b[n:], e.more[e.taken%len(e.more):])
		n, e.taken = n+k, e.taken+k
	}
	return n, nil
}

// TestReaderIsBounded shows that a request without an end is refused early, with a buffer close to
// the limits.
func TestReaderIsBounded(t *testing.T) {
	for _, c := range []struct {
		name, begin, more string
		err               error
	}{
		{"method", "", "AAAAAAAA", errHeadSize},
		{"value", "A\nname: ", "aaaaaaaa", errHeadSize},
		{"name", "A\n", "aaaaaaaa", errHeadSize},
		{"headers", "A\n", "a:b\n", errHeadSize},
		{"continued", "A\nname: a\n", " b\n", errHeadSize},
		{"words", "A\n", "a\n", errHeadSize},
		{"CR", "A\r", "a:\r", errHeadSize},
		{"small chunks", "A\nTransfer-Encoding: chunked\n\n", "1\na\n", errBodySize},
		{"decorated chunks", "A\nTransfer-Encoding: chunked\n\n", "1;" + strings.Repeat("x", 1000) + "\na\n", errBodySize},
		{"large chunks", "A\nTransfer-Encoding: chunked\n\n", "3e8\n" + strings.Repeat("x", 1000) + "\n", errBodySize},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := &endless{begin: c.begin, more: c.more}
			rd := newReader(src, some)
			held := 0
			rd.room = func(delta int) bool { held += delta; return true }
			var req request
			if err := rd.next(&req); !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if n := len(rd.buf); n > 4*(some.head+some.body) {
				t.Errorf("a buffer of %d bytes", n)
			}
			if want := max(len(rd.buf)-freeBuffer, 0) + max(cap(rd.spans)-keptHeaders, 0)*headerBytes; held != want {
				t.Errorf("asked for %d bytes, has %d", held, want)
			}
			rd.close()
			if held != 0 {
				t.Errorf("%d bytes were not given back", held)
			}
		})
	}
}

// TestReaderAsksForRoom shows that a request without memory is refused, and that a later one is
// read.
func TestReaderAsksForRoom(t *testing.T) {
	full := true
	rd := newReader(strings.NewReader("A\nname: "+strings.Repeat("a", 30<<10)+"\n\n"), some)
	rd.room = func(delta int) bool { return delta < 0 || !full }
	var req request
	if err := rd.next(&req); !errors.Is(err, errMemory) {
		t.Fatalf("error %v", err)
	}
	if len(rd.buf) != freeBuffer {
		t.Errorf("a buffer of %d bytes", len(rd.buf))
	}
	full = false
	if err := rd.next(&req); err != nil || len(req.get("name")) != 30<<10 {
		t.Errorf("%d bytes, error %v", len(req.get("name")), err)
	}
}

// TestReaderGivesUpLargeBuffers shows that only the small buffer remains after a large request.
func TestReaderGivesUpLargeBuffers(t *testing.T) {
	in := "A\nname: " + strings.Repeat("a", 30<<10) + "\n\nB\n\n"
	rd := newReader(iotest.OneByteReader(strings.NewReader(in)), some)
	var req request
	for _, want := range []string{"A", "B"} {
		if err := rd.next(&req); err != nil || string(req.line) != want {
			t.Fatalf("%q, %v", req.line, err)
		}
		rd.done(&req)
		if len(rd.buf) != baseBuffer {
			t.Errorf("after %s: a buffer of %d bytes", want, len(rd.buf))
		}
	}
}

// TestReaderPhases shows that each wait belongs to a phase, and that each phase is announced once.
func TestReaderPhases(t *testing.T) {
	var got []phase
	rd := newReader(iotest.OneByteReader(strings.NewReader("\n\nA\nContent-Length: 2\n\nab\nB\n\n")), some)
	rd.enter = func(p phase) { got = append(got, p) }
	var req request
	for range 2 {
		if err := rd.next(&req); err != nil {
			t.Fatal(err)
		}
		rd.done(&req)
	}
	if err := rd.next(&req); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := []phase{phaseIdle, phaseHead, phaseBody, phaseIdle, phaseHead, phaseIdle}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestReaderAllocations shows that reading a request allocates no memory.
func TestReaderAllocations(t *testing.T) {
	in := compose(nil, "CreateJob", [][2]string{{"name", "foo"}, {"data", `{"text":"a\nb"}`}, {"repeat", "finished, +1 minute"}}, "")
	src := bytes.NewReader(in)
	rd := newReader(src, some)
	var req request
	n := testing.AllocsPerRun(100, func() {
		src.Reset(in)
		if err := rd.next(&req); err != nil {
			t.Fatal(err)
		}
		if !req.is("name", "foo") {
			t.Fatal("no name")
		}
		rd.done(&req)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkReader(b *testing.B) {
	in := compose(nil, "CreateJob", [][2]string{{"name", "foo"}, {"data", `{"value":1}`}, {"repeat", "finished, +1 minute"}}, "")
	src := bytes.NewReader(in)
	rd := newReader(src, some)
	var req request
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(in)
		if err := rd.next(&req); err != nil {
			b.Fatal(err)
		}
		rd.done(&req)
	}
}
