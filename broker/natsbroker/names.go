package natsbroker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
)

// names builds every name of a namespace on the server; nothing else does. See the package comment for what they hold.
type names struct {
	stream string // SWJ_<namespace>
	notes  string // SWJNOTES_<namespace>, the stream of notes of starts on old servers
	prefix string // swj.<namespace>.
}

func newNames(namespace string) names {
	return names{stream: "SWJ_" + namespace, notes: "SWJNOTES_" + namespace, prefix: "swj." + namespace + "."}
}

// subjects are those of the stream. They never change, so that no process has to add its queues to them.
func (n names) subjects() []string {
	return append(noteSubjects(n.prefix),
		n.prefix+"T.*.*.*", n.prefix+"S.*.*", n.prefix+"D.*.*.*", n.prefix+"Q.*", n.prefix+"M.*")
}

// queueToken is a queue's name within a subject. '=' is no character of a queue's name.
func queueToken(queue string) string { return strings.ReplaceAll(queue, ".", "=") }

// work begins the subjects of the messages of a queue's level; the id's token follows.
func (n names) work(queue string, level int) string {
	return n.prefix + "T." + queueToken(queue) + "." + strconv.Itoa(level) + "."
}

// schedule begins the subjects of a queue's delayed messages; the id's token follows.
func (n names) schedule(queue string) string { return n.prefix + "S." + queueToken(queue) + "." }

// dead begins the subjects of a queue's dead letters; the id's token, a dot and the generation follow.
func (n names) dead(queue string) string { return n.prefix + "D." + queueToken(queue) + "." }

// record is the subject of what all processes must know of a queue.
func (n names) record(queue string) string { return n.prefix + "Q." + queueToken(queue) }

// mark is the subject of up to which sequence messages of a queue were deleted or purged.
func (n names) mark(queue string) string { return n.prefix + "M." + queueToken(queue) }

// noteSubjects are those of notes of starts.
func noteSubjects(prefix string) []string { return []string{prefix + "W.*.*.*", prefix + "L.*"} }

// noteSubject is the subject of the notes of a message, by its id's token, without the prefix.
func noteSubject(queue, token string, generation int) string {
	return "W." + queueToken(queue) + "." + token + "." + strconv.Itoa(generation)
}

// leftSubject is that of the word that a node has left, without the prefix.
func leftSubject(node string) string { return "L." + queueToken(node) }

// presence is the subject on which a node answers.
func (n names) presence(node string) string { return n.prefix + "P." + queueToken(node) }

// consumer is the durable consumer of a queue's level.
func (n names) consumer(queue string, level int) string {
	return "w_" + queueToken(queue) + "_" + strconv.Itoa(level)
}

// maxID is the longest id in bytes.
const maxID = 255

const hexDigits = "0123456789ABCDEF"

// plain reports whether a byte stands for itself in an id's token.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// idToken is an id within a subject: every byte that is not a letter, a digit, '-' or '_' is '=' and two hex digits.
func idToken(id string) (string, error) {
	if id == "" || len(id) > maxID {
		return "", fmt.Errorf("%w: an id has 1 to %d bytes, this one %d", broker.ErrMalformed, maxID, len(id))
	}
	i := 0
	for i < len(id) && plain(id[i]) {
		i++
	}
	if i == len(id) {
		return id, nil
	}
	var s strings.Builder
	for i := range len(id) {
		if c := id[i]; plain(c) {
			s.WriteByte(c)
		} else {
			s.WriteByte('=')
			s.WriteByte(hexDigits[c>>4])
			s.WriteByte(hexDigits[c&15])
		}
	}
	return s.String(), nil
}

// idOf reads an id's token. One that is not well formed, which a foreign program may have written, is the id itself.
func idOf(token string) string {
	if strings.IndexByte(token, '=') < 0 {
		return token
	}
	var s strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			s.WriteByte(token[i])
			continue
		}
		if i+2 >= len(token) {
			return token
		}
		n, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil {
			return token
		}
		s.WriteByte(byte(n))
		i += 2
	}
	return s.String()
}

// lastToken is what follows the last dot.
func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
