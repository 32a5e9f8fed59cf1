package amqpconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// textFrame returns a frame of the given type with a payload.
func textFrame(typ byte, payload string) string {
	b := binary.BigEndian.AppendUint32([]byte{typ, 0, 1}, uint32(len(payload)))
	return string(b) + payload + "\xce"
}

// messageFrame returns the frame of a message's properties: the content type, the headers and the
// delivery mode.
func messageFrame(headers string) string {
	const flags = "\xb0\x00"
	b := binary.BigEndian.AppendUint32([]byte("\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05"+flags+"\x04text"), uint32(len(headers)))
	return textFrame(frameHeader, string(b)+headers+"\x02")
}

// sized returns s after its length in 4 bytes.
func sized(s string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s }

// TestFieldReader shows that headers which the library cannot read are changed, and that all other
// bytes pass, however they arrive.
func TestFieldReader(t *testing.T) {
	unreadable := messageFrame(unreadableHeaders)
	deep := "V"
	for range 40 {
		deep = "A" + sized(deep)
	}
	for name, c := range map[string]struct{ in, want string }{
		"other frames":      {textFrame(1, "method") + textFrame(3, "L\x02LL") + textFrame(8, ""), ""},
		"no headers":        {textFrame(frameHeader, "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x10\x00\x02"), ""},
		"empty headers":     {messageFrame(""), ""},
		"all types":         {messageFrame("\x01aV\x01bt1\x01cb1\x01dB1\x01es12\x01fu12\x01gI1234\x01hi1234\x01if1234\x01jD12345\x01kl12345678\x01ld12345678\x01mT12345678\x01nS" + sized("L") + "\x01ox" + sized("L")), ""},
		"a large integer":   {messageFrame("\x01aL12345678\x01bI1234"), messageFrame("\x01al12345678\x01bI1234")},
		"in a list":         {messageFrame("\x01aA" + sized("L12345678VL12345678")), messageFrame("\x01aA" + sized("l12345678Vl12345678"))},
		"in a table":        {messageFrame("\x01aF" + sized("\x01LL12345678")), messageFrame("\x01aF" + sized("\x01Ll12345678"))},
		"an unknown type":   {messageFrame("\x01aZ123") + textFrame(3, "body"), unreadable + textFrame(3, "body")},
		"nested too deep":   {messageFrame("\x01a" + deep), unreadable},
		"too many":          {messageFrame("\x01aA" + sized(strings.Repeat("V", 9000))), unreadable},
		"a short name":      {messageFrame("\x05a"), unreadable},
		"one byte":          {messageFrame("\x00"), unreadable},
		"a short value":     {messageFrame("\x01aI12"), unreadable},
		"a long text":       {messageFrame("\x01aS\xff\xff\xff\xff"), unreadable},
		"a list beyond it":  {messageFrame("\x01aA\x00\x00\x00\x09V"), unreadable},
		"wrong length":      {textFrame(frameHeader, "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x20\x00\x00\x00\x00\xff\x01aV"), ""},
		"an unended frame":  {messageFrame("\x01aL12345678")[:30], ""},
		"no AMQP":           {"HTTP/1.1 400 Bad Request\r\n\r\n", ""},
		"a refusal":         {"AMQP\x00\x00\x09\x01", ""},
		"an alert of TLS":   {"\x15\x03\x01\x00\x02\x02\x46", ""},
		"less than a frame": {"\x01\x00", ""},
		"nothing":           {"", ""},
	} {
		want := c.want
		if want == "" {
			want = c.in
		}
		for way, in := range map[string]io.Reader{"at once": strings.NewReader(c.in), "by bytes": iotest.OneByteReader(strings.NewReader(c.in))} {
			got, err := io.ReadAll(iotest.OneByteReader(newFieldReader(in)))
			if err != nil || string(got) != want {
				t.Errorf("%s, %s: %v\n%q\nwant\n%q", name, way, err, got, want)
			}
		}
	}
	broken := errors.New("broken")
	f := newFieldReader(io.MultiReader(strings.NewReader(textFrame(8, "")), iotest.ErrReader(broken)))
	if got, err := io.ReadAll(f); !errors.Is(err, broken) || string(got) != textFrame(8, "") {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzFieldReader shows that frames stay frames, and that changed headers need no further change.
func FuzzFieldReader(f *testing.F) {
	f.Add([]byte("\x01aL12345678\x01aF\x00\x00\x00\x04\x01LVV"))
	f.Add([]byte("\x01aZ"))
	f.Fuzz(func(t *testing.T, headers []byte) {
		if len(headers) > frameLimit/2 {
			return
		}
		once, err := io.ReadAll(newFieldReader(strings.NewReader(messageFrame(string(headers)))))
		if err != nil || len(once) < frameStart || int(binary.BigEndian.Uint32(once[3:])) != len(once)-frameStart-1 {
			t.Fatalf("%q, %v", once, err)
		}
		twice, err := io.ReadAll(newFieldReader(bytes.NewReader(once)))
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%q, %v; before %q", twice, err, once)
		}
	})
}
