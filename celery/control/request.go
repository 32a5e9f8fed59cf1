package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/internal/glob"

	node "github.com/swarmiji/swarmiji/control"
)

// Limits of a received command.
const (
	maxRequest = 8 << 20 // bytes: a hello with a whole list of revoked tasks has 5 MB
	maxPattern = 1 << 10 // bytes of a pattern
	maxMethod  = 256     // bytes of a command's name
)

// request is a command of one of Celery's clients.
type request struct {
	Method      string         `json:"method"`
	Arguments   map[string]any `json:"arguments"`
	Destination []string       `json:"destination"`
	Pattern     string         `json:"pattern"`
	Matcher     string         `json:"matcher"`
	Ticket      any            `json:"ticket"`
	ReplyTo     *struct {
		Exchange   string `json:"exchange"`
		RoutingKey string `json:"routing_key"`
	} `json:"reply_to"`
}

// readRequest reads a command. Numbers in the arguments are json.Number. Returns an error for a
// message of another content type, one that is too large, and one whose fields have wrong types.
func readRequest(m *Message) (*request, error) {
	if !m.JSON {
		return nil, errors.New("the content type is not application/json")
	}
	if len(m.Body) > maxRequest {
		return nil, fmt.Errorf("the command has %d bytes, at most %d", len(m.Body), maxRequest)
	}
	var r request
	d := json.NewDecoder(bytes.NewReader(m.Body))
	d.UseNumber()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("not a command: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a command: there is text after it")
	}
	if r.Method == "" || len(r.Method) > maxMethod {
		return nil, fmt.Errorf("not a command: the name has %d bytes, want 1 to %d", len(r.Method), maxMethod)
	}
	return &r, nil
}

// concerns reports whether the node with this name must execute r: r names the node, has a pattern
// that matches it, or has neither. Returns an error for a pattern that cannot be read.
func (r *request) concerns(id string) (bool, error) {
	if len(r.Destination) > 0 {
		return slices.Contains(r.Destination, id), nil
	}
	if r.Pattern == "" || r.Matcher == "" {
		return true, nil
	}
	if len(r.Pattern) > maxPattern {
		return false, fmt.Errorf("the pattern has %d bytes, at most %d", len(r.Pattern), maxPattern)
	}
	switch r.Matcher {
	case "glob":
		// Python negates a set by "!"
		p := glob.Compile(strings.ReplaceAll(r.Pattern, "[!", "[^"))
		return p.Match(id), nil
	case "pcre":
		p, err := regexp.Compile(`^(?:` + r.Pattern + `)`) // Python's re.match
		if err != nil {
			return false, fmt.Errorf("the pattern: %w", err)
		}
		return p.MatchString(id), nil
	}
	return false, fmt.Errorf("the matcher %q is unknown", r.Matcher)
}

// answered reports whether the sender of r waits for a reply. A reply goes to Celery's exchange for
// replies only, so that a command cannot make a node write anywhere else.
func (r *request) answered() bool {
	return r.ReplyTo != nil && r.ReplyTo.Exchange == Replies.String() && r.ReplyTo.RoutingKey != "" && len(r.ReplyTo.RoutingKey) <= 255
}

// answer sends the reply of n to the sender of r. It counts and logs a failure.
func (s *Service) answer(ctx context.Context, n node.Node, r *request, reply any) {
	body, err := json.Marshal(map[string]any{s.name(n): reply})
	if err == nil {
		headers := map[string]any{"clock": s.cfg.Bus.clock.forward()}
		if ticket, ok := r.Ticket.(string); ok {
			headers["ticket"] = ticket
		}
		sending, cancel := context.WithTimeout(ctx, sendTime)
		defer cancel()
		err = s.cfg.Bus.transport.Publish(sending, &Message{Exchange: Replies, Key: r.ReplyTo.RoutingKey, Headers: headers, JSON: true, Body: body})
	}
	if err != nil && ctx.Err() == nil {
		s.unsent.Add(1)
		s.log(ctx, n, slog.LevelWarn, "celery/control: sending the reply failed", slog.Any("error", err))
	}
}

// done is the reply of a command that succeeded.
func done(format string, args ...any) map[string]any {
	return map[string]any{"ok": fmt.Sprintf(format, args...)}
}

// failed is the reply of a command that failed.
func failed(text string) map[string]any { return map[string]any{"error": text} }

// repr returns s as Python's repr writes it.
func repr(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == '\\' || c == rune(quote):
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte(quote)
	return b.String()
}
