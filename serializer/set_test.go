package serializer

import (
	"errors"
	"testing"
)

type odd struct{ JSON }

func (odd) ContentType() string { return "" }

func TestSet(t *testing.T) {
	set, err := NewSet(JSON{}, Raw{})
	if err != nil {
		t.Fatal(err)
	}
	if set.Default().ContentType() != ContentJSON {
		t.Errorf("the default is %q, want the first of the list", set.Default().ContentType())
	}
	for contentType, want := range map[string]string{
		"":                                ContentJSON,
		ContentJSON:                       ContentJSON,
		ContentRaw:                        ContentRaw,
		"application/json; charset=utf-8": ContentJSON,
		" Application/JSON ;x=y":          ContentJSON,
	} {
		s, err := set.For(contentType)
		if err != nil || s.ContentType() != want {
			t.Errorf("For(%q) gave %v, %v; want the one of %s", contentType, s, err, want)
		}
	}
	for _, contentType := range []string{ContentMsgpack, "application/jsonx", "json", ";", "application/x-gob"} {
		if _, err := set.For(contentType); !errors.Is(err, ErrUnknownType) {
			t.Errorf("For(%q) gave %v, want ErrUnknownType: the set is the allow list", contentType, err)
		}
	}
}

func TestSetRefuses(t *testing.T) {
	for name, ss := range map[string][]Serializer{
		"an empty set":            nil,
		"a nil serializer":        {JSON{}, nil},
		"a content type twice":    {JSON{}, Raw{}, JSON{}},
		"an empty content type":   {odd{}},
		"an empty one after good": {JSON{}, odd{}},
	} {
		if set, err := NewSet(ss...); err == nil || set != nil {
			t.Errorf("NewSet took %s", name)
		}
	}
}

func TestRawTypes(t *testing.T) {
	src := []byte{1, 2}
	for _, v := range []any{src, &src, "\x01\x02"} {
		data, err := Raw{}.Marshal(v)
		if err != nil || string(data) != "\x01\x02" {
			t.Errorf("Marshal(%T) gave %q, %v", v, data, err)
		}
	}
	var into any
	if err := (Raw{}).Unmarshal(src, &into); err != nil {
		t.Fatal(err)
	}
	src[0] = 9
	if b, ok := into.([]byte); !ok || string(b) != "\x01\x02" {
		t.Errorf("into *any gave %v, want a copy of the bytes", into)
	}
	if _, err := (Raw{}).Marshal(3); !errors.Is(err, ErrValue) {
		t.Errorf("Marshal(3) gave %v, want ErrValue", err)
	}
}
