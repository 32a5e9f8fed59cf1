package redisbroker

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/internal/redisconn"
)

//go:embed lua/*.lua
var sources embed.FS

// script is a Lua script with the names of its keys.
type script struct {
	*redisconn.Script
	source string
	parts  []string // "from.t" is the table t of the queue from which a message is moved
	lists  bool     // the lists of ready messages follow
	differ bool     // it has lines that are only for plain or for fair queues
	fair   *script  // the script for fair queues; nil if it is the same
}

// forLevels returns the script for a queue with the levels l.
func (s *script) forLevels(l *levels) *script {
	if l.fair && s.fair != nil {
		return s.fair
	}
	return s
}

// scripts holds the Lua scripts that the server executes. Each file documents its arguments and its
// answer.
type scripts struct {
	declare, enqueue, subscribe, renew, claim, ack, release, leave, bury, retry *script
	find, update, stats, purge, putDead, dropDead, dead, purgeDead, mute        *script
	note, judge, node, look, tend, list, describe, keys                         *script
}

// loadScripts returns the scripts. All brokers of a process share them, and the first call reads
// them.
var loadScripts = sync.OnceValues(readScripts)

// readScripts reads all scripts from the embedded files. It returns an error if a file is missing
// or a script uses a key that it does not name. It sends nothing to the server.
func readScripts() (*scripts, error) {
	s := &scripts{}
	plain, plainErr := library("plain")
	fair, fairErr := library("fair")
	if err := errors.Join(plainErr, fairErr); err != nil {
		return nil, fmt.Errorf("redisbroker: functions of the scripts: %w", err)
	}
	for name, to := range map[string]**script{
		"declare": &s.declare, "enqueue": &s.enqueue, "subscribe": &s.subscribe, "renew": &s.renew, "claim": &s.claim,
		"ack": &s.ack, "release": &s.release, "leave": &s.leave, "bury": &s.bury, "retry": &s.retry, "find": &s.find,
		"update": &s.update, "stats": &s.stats, "purge": &s.purge, "putdead": &s.putDead, "dropdead": &s.dropDead, "dead": &s.dead,
		"purgedead": &s.purgeDead, "mute": &s.mute, "note": &s.note, "judge": &s.judge, "node": &s.node,
		"look": &s.look, "tend": &s.tend, "list": &s.list, "describe": &s.describe, "keys": &s.keys,
	} {
		var err error
		if *to, err = loadScript(name, "plain", plain); err != nil {
			return nil, fmt.Errorf("redisbroker: script %s: %w", name, err)
		}
		if !(*to).lists && !(*to).differ {
			continue
		}
		if (*to).fair, err = loadScript(name, "fair", fair); err != nil {
			return nil, fmt.Errorf("redisbroker: script %s for fair queues: %w", name, err)
		}
	}
	return s, nil
}

// library returns the functions that scripts for queues of a kind, "plain" or "fair", may use. An
// empty line is before each. Returns an error if a file does not exist.
func library(kind string) (string, error) {
	lib := ""
	for _, file := range []string{"lib", "bounds", kind, "moves"} {
		text, err := sources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			return "", err
		}
		_, functions, _ := strings.Cut(linesFor(kind, string(text)), "\n\n")
		lib += "\n\n" + strings.TrimSuffix(functions, "\n")
	}
	return lib, nil
}

// loadScript loads one script from the embedded files, for queues of a kind, "plain" or "fair".
// lib is the library of that kind. A fair queue has some scripts of its own, with "fair" before the
// name. The text consists of the file's first line, with the flags for the server, the library
// functions that it uses, and the other lines. Names of keys are replaced by their indexes in KEYS.
// Returns an error if a file does not exist or a name of a key is unknown.
func loadScript(name, kind, lib string) (*script, error) {
	text, err := sources.ReadFile("lua/" + kind + name + ".lua")
	if err != nil {
		text, err = sources.ReadFile("lua/" + name + ".lua")
	}
	if err != nil {
		return nil, err
	}
	own := linesFor(kind, string(text))
	first, rest, _ := strings.Cut(own, "\n")
	_, after, _ := strings.Cut(rest, "-- KEYS: ")
	line, _, _ := strings.Cut(after, "\n")
	line, _, _ = strings.Cut(line, " -- of ")
	s := &script{parts: strings.Fields(line), differ: own != string(text)}
	if n := len(s.parts) - 1; n >= 0 && s.parts[n] == "r" {
		s.parts, s.lists = s.parts[:n], true
	}
	if s.source, err = s.substituteKeys(first + "\n" + usedFunctions(lib, rest) + rest); err != nil {
		return nil, err
	}
	s.Script = redisconn.NewScript(s.source)
	return s, nil
}

// linesFor returns the text of a script without the lines that are only for queues of another kind.
// These end with "-- of plain queues" or "-- of fair queues".
func linesFor(kind, text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		_, of, _ := strings.Cut(line, " -- of ")
		if other, marked := strings.CutSuffix(of, " queues\n"); !marked || other == kind {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// usedFunctions returns the functions of the library lib that text uses, directly or through
// others, in their order. Each part of lib but the first is one function, after the functions that
// it uses.
func usedFunctions(lib, text string) string {
	kept := ""
	for _, part := range slices.Backward(strings.Split(lib, "\n\n")[1:]) {
		_, after, _ := strings.Cut(part, "local function ")
		name, _, _ := strings.Cut(after, "(")
		if call := name + "("; strings.Contains(text, call) || strings.Contains(kept, call) {
			kept = part + "\n" + kept
		}
	}
	return kept
}

// substituteKeys replaces the names of keys in source, which begin with "K.", by elements of KEYS:
// K.t and K.from.t by those of the parts t and from.t, and K.r(i) by ready list number i. K.r()
// becomes all ready lists, as several values. It returns an error for a name that is not among the
// script's keys. No other word in a script may end with "K.".
func (s *script) substituteKeys(source string) (string, error) {
	texts := strings.Split(source, "K.")
	for i, text := range texts[1:] {
		text, moved := strings.CutPrefix(text, "from.")
		rest := strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyz")
		name := strings.TrimSuffix(text, rest)
		if moved {
			name = "from." + name
		}
		n := slices.Index(s.parts, name)
		list, after, _ := strings.Cut(rest, ")")
		switch {
		case n >= 0:
			texts[i+1] = "KEYS[" + strconv.Itoa(n+1) + "]" + rest
		case !s.lists || name != "r" || !strings.HasPrefix(list, "("):
			return "", fmt.Errorf("it uses K.%s, which is not among its keys", name)
		case list == "(":
			texts[i+1] = "unpack(KEYS, " + strconv.Itoa(len(s.parts)+1) + ")" + after
		default:
			texts[i+1] = "KEYS[" + strconv.Itoa(len(s.parts)) + " + " + list[1:] + "]" + after
		}
	}
	return strings.Join(texts, ""), nil
}

// keys returns the names of the script's keys for queue q, in the order of KEYS. The parts come
// first, then readyKeys of the levels l if the script uses ready lists. from is the queue from
// which a message is moved, or nil.
func (s *script) keys(q, from *queue, l *levels) []string {
	keys := make([]string, 0, len(s.parts)+2*l.number())
	for _, part := range s.parts {
		if other, ok := strings.CutPrefix(part, "from."); ok {
			keys = append(keys, from.names.part(other))
		} else {
			keys = append(keys, q.names.part(part))
		}
	}
	if s.lists {
		keys = append(keys, l.readyKeys(&q.names)...)
	}
	return keys
}
