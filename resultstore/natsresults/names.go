package natsresults

import (
	"strings"

	"github.com/swarmiji/swarmiji/task"
)

// Headers of a record's message.
const (
	headerTTL  = "Swj-TTL" // retention in milliseconds
	natsTTL    = "Nats-TTL"
	natsExpect = "Nats-Expected-Last-Subject-Sequence"
	natsSeq    = "Nats-Sequence"
	natsTime   = "Nats-Time-Stamp"
)

// names holds the stream and subjects of a namespace. The stream's name differs from those of all
// brokers.
type names struct {
	stream  string
	records string // prefix of the subjects of records
	notices string // prefix of the subjects of notifications

	direct string // prefix of the subjects for direct reads
}

// namesOf returns the names of a namespace.
func namesOf(namespace string) names {
	n := names{
		stream:  "SWJRESULTS_" + namespace,
		records: "swj." + namespace + ".R.",
		notices: "swj." + namespace + ".N.",
	}
	n.direct = "$JS.API.DIRECT.GET." + n.stream + "."
	return n
}

// record returns the subject of the record of a task, or of another key of the store.
func (n *names) record(id task.ID) string { return n.records + token(string(id)) }

// notify returns the subject on which node is notified of its tasks.
func (n *names) notify(node string) string { return n.notices + token(node) }

// token returns s as one token of a subject. It writes bytes that are not allowed as =XX, like
// natsbroker does for ids.
func token(s string) string {
	const hex = "0123456789ABCDEF"
	extra := 0
	for i := range len(s) {
		if !plain(s[i]) {
			extra += 2
		}
	}
	if extra == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + extra)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// plain reports whether a byte may stand unchanged in a token: a letter, a digit, '-' or '_'.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
