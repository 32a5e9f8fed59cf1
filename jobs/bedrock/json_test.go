package bedrock

import (
	"testing"
	"time"
)

func TestValues(t *testing.T) {
	for in, want := range map[string]string{
		"":                     `""`,
		"0":                    `0`,
		"12":                   `12`,
		"-12":                  `-12`,
		"-0":                   `"-0"`,
		"+1":                   `"+1"`,
		"007":                  `"007"`,
		"1.5":                  `"1.5"`,
		"9223372036854775807":  `9223372036854775807`,
		"-9223372036854775808": `-9223372036854775808`,
		"9223372036854775808":  `"9223372036854775808"`,
		"true":                 `true`,
		"True":                 `"True"`,
		"false":                `false`,
		"null":                 `null`,
		"{}":                   `{}`,
		`{"a":[1]}`:            `{"a":[1]}`,
		`{"a":1`:               `"{\"a\":1"`,
		`{"a":1}}`:             `"{\"a\":1}}"`,
		`{'a':1}`:              `"{'a':1}"`,
		`[1,2]`:                `[1,2]`,
		`[1,2`:                 `"[1,2"`,
		"a/b":                  `"a/b"`,
		"a\"b\\c\n\r\t\x01":    `"a\"b\\c\n\r\t\u0001"`,
		"é\xff":                "\"é\ufffd\"",
	} {
		if got := string(appendValue(nil, in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	if got := string(appendTime(nil, time.Time{})); got != `""` {
		t.Error(got)
	}
	at := time.Date(2014, 12, 29, 7, 38, 51, 999, time.FixedZone("", 3600))
	if got := string(appendTime(nil, at)); got != `"2014-12-29 06:38:51"` {
		t.Error(got)
	}
}

func TestAnswers(t *testing.T) {
	eleven := []byte(`{"jobID":1}`)
	for _, c := range []struct {
		a    answer
		want string
	}{
		{answer{}, "200 OK\r\nContent-Length: 0\r\n\r\n"},
		{answer{body: &body{out: &eleven}}, "200 OK\r\nContent-Length: 11\r\n\r\n"},
		{answer{status: statusNoJob, close: true}, "404 No job found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
	} {
		if got := string(appendHead(nil, &c.a)); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
