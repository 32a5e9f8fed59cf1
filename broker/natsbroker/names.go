package natsbroker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
)

// names builds all names of a namespace on the server. The package comment documents them.
type names struct {
	stream string // SWJ_<namespace>
	notes  string // SWJNOTES_<namespace>, the stream of notes of starts on old servers
	prefix string // swj.<namespace>.
}

// newNames returns the names of a namespace.
func newNames(namespace string) names {
	return names{stream: "SWJ_" + namespace, notes: "SWJNOTES_" + namespace, prefix: "swj." + namespace + "."}
}

// subjects returns the subjects of the stream. They never change, so a new queue does not change
// the stream.
func (n names) subjects() []string {
	return append(noteSubjects(n.prefix),
		n.prefix+"T.*.*.*", n.prefix+"S.*.*", n.prefix+"D.*.*.*", n.prefix+"Q.*", n.prefix+"M.*")
}

// queueToken returns a queue's name as a part of a subject. '=' replaces the dots, because a queue
// name cannot hold it.
func queueToken(queue string) string { return strings.ReplaceAll(queue, ".", "=") }

// laneToken returns the token of a lane in subjects and names of consumers. That of lane 0 is the
// number of the level.
func laneToken(level, lane int) string {
	if lane == 0 {
		return strconv.Itoa(level)
	}
	return strconv.Itoa(level) + "f" + strconv.Itoa(lane)
}

// work returns the beginning of the subjects of the messages of a lane, by its token. The id's
// token follows.
func (n names) work(queue, lane string) string {
	return n.prefix + "T." + queueToken(queue) + "." + lane + "."
}

// schedule returns the beginning of the subjects of a queue's delayed messages. The id's token
// follows.
func (n names) schedule(queue string) string { return n.prefix + "S." + queueToken(queue) + "." }

// dead returns the beginning of the subjects of a queue's dead letters. The id's token, a dot and
// the generation follow.
func (n names) dead(queue string) string { return n.prefix + "D." + queueToken(queue) + "." }

// record returns the subject of a queue's record, which holds its levels and its fairness.
func (n names) record(queue string) string { return n.prefix + "Q." + queueToken(queue) }

// mark returns the subject of a queue's mark: the sequence up to which messages were deleted or
// purged.
func (n names) mark(queue string) string { return n.prefix + "M." + queueToken(queue) }

// noteSubjects returns, with the given prefix, the subjects of notes of starts and of nodes that
// have left.
func noteSubjects(prefix string) []string { return []string{prefix + "W.*.*.*", prefix + "L.*"} }

// noteSubject returns the subject of the notes of a message, without the prefix. token is the id's
// token.
func noteSubject(queue, token string, generation int) string {
	return "W." + queueToken(queue) + "." + token + "." + strconv.Itoa(generation)
}

// leftSubject returns the subject of the message which says that a node has left, without the
// prefix.
func leftSubject(node string) string { return "L." + queueToken(node) }

// presence returns the subject on which a node answers the question whether it is present.
func (n names) presence(node string) string { return n.prefix + "P." + queueToken(node) }

// consumer returns the name of the durable consumer of a lane, by its token.
func (n names) consumer(queue, lane string) string {
	return "w_" + queueToken(queue) + "_" + lane
}

// maxID limits an id, in bytes.
const maxID = 255

const hexDigits = "0123456789ABCDEF"

// plain reports whether a byte is unchanged in an id's token.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// idToken returns an id as a part of a subject. Every byte that is not a letter, a digit, '-' or
// '_' becomes '=' and two hex digits. Returns ErrMalformed for an empty id or one of more than
// maxID bytes.
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

// idOf returns the id in a token, with each '=' and two hex digits decoded. A token that is not
// well-formed, which a foreign program may have written, is the id itself.
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

// lastToken returns the part of a subject after the last dot.
func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
