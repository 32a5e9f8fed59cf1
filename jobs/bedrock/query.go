package bedrock

import (
	"context"
	"errors"
	"strconv"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/internal/page"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// maxRows limits the number of jobs in the answer to a query.
const maxRows = 10_000

// queryJob executes QueryJob: it answers with the fields of the job in the header jobID, as a JSON
// object. Returns a statusError without a valid id, and the error of the service, such as
// ErrNotFound.
func queryJob(ctx context.Context, c *call) error {
	id, err := fields{c.req}.id()
	if err != nil {
		return err
	}
	j, err := c.s.Row(ctx, id)
	if err != nil {
		return err
	}
	out := appendTime(key(append(*c.out, '{'), "created"), j.Created)
	out = appendData(key(out, "data"), dataForClient(&j, j.Handouts))
	out = strconv.AppendInt(key(out, "jobID"), int64(j.ID), 10)
	out = appendTime(key(out, "lastRun"), j.LastRun)
	out = appendValue(key(out, "name"), j.Name)
	out = appendTime(key(out, "nextRun"), j.NextRun)
	out = strconv.AppendInt(key(out, "priority"), topPriority-int64(j.Priority), 10)
	out = appendValue(key(out, "repeat"), j.Repeat)
	out = appendValue(key(out, "retryAfter"), j.RetryAfter)
	out = appendString(key(out, "state"), string(j.State))
	*c.out = append(out, '}')
	return nil
}

// query executes Query, whose statement is in the header query or the body: it answers with the
// matching jobs as a JSON array of rows. It reads them page by page; each page waits until memory
// for a row is free. It parses the statement itself; no text of a client ever becomes SQL.
//
// Returns a statusError without a statement, for another statement or one above maxList bytes, for
// more than maxRows rows, and for an answer above MaxAnswer. Returns errNoMemory, or the error of
// the service or of ctx.
func query(ctx context.Context, c *call) error {
	text := c.req.get("query")
	if text == nil {
		text = c.req.body
	}
	if len(trim(text)) == 0 {
		return missing("query")
	}
	if len(text) > maxList {
		return statusError("402 Bad query")
	}
	id, q, ok := parseQuery(string(text))
	if !ok {
		return statusError("402 Bad query")
	}
	if id >= 0 {
		return c.queryOne(ctx, id)
	}
	*c.out = append(*c.out, '[')
	size := c.c.s.pages()
	for rows := 0; ; {
		q.Limit = size.Limit()
		found, err := c.queryPage(ctx, q, rows)
		if err != nil {
			return err
		}
		if rows += found.n; !found.more {
			break
		}
		size.Read(found.n, found.bytes)
		q.After = found.last
	}
	*c.out = append(*c.out, ']')
	return nil
}

// queried describes a page of jobs. more reports that further jobs may follow.
type queried struct {
	n, bytes int
	last     jobs.ID
	more     bool
}

// queryPage reads a page of at most q.Limit jobs, fewer if little memory is free, and appends it
// to the answer. It first blocks until room for a row is free, or ctx ends. before is the number
// of rows before it. Returns a statusError beyond maxRows or MaxAnswer, and errNoMemory without
// memory for the answer. Returns the error of ctx if it ends during the wait, and errors of the
// service.
func (c *call) queryPage(ctx context.Context, q jobs.Filter, before int) (r queried, err error) {
	limit, leave, err := c.memory.pages.some(ctx, q.Limit)
	if err != nil {
		return r, err
	}
	defer leave()
	q.Limit = limit
	found, err := c.s.Rows(ctx, q)
	if err != nil {
		return r, err
	}
	for i := range found {
		if before+i == maxRows {
			return r, statusError("402 Too many rows")
		}
		if before+i > 0 {
			*c.out = append(*c.out, ',')
		}
		c.grow(page.Rows(found[i : i+1]))
		*c.out = appendRow(*c.out, &found[i])
		r.last = found[i].ID
		switch {
		case c.length() > c.c.s.c.MaxAnswer:
			return r, statusError("402 Too much data")
		case !c.count():
			return r, errNoMemory
		}
		c.startPart()
	}
	r.n, r.bytes, r.more = len(found), page.Rows(found), len(found) == limit
	return r, nil
}

// queryOne answers with a list of the row of one job. If the job does not exist, the list is empty.
// Returns the other errors of the service.
func (c *call) queryOne(ctx context.Context, id jobs.ID) error {
	j, err := c.s.Row(ctx, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		*c.out = append(*c.out, "[]"...)
	case err != nil:
		return err
	default:
		*c.out = append(appendRow(append(*c.out, '['), &j), ']')
	}
	return nil
}

// appendRow appends a job as a JSON array of its columns, in the order of the table that clients of
// the protocol expect: created, jobID, state, name, nextRun, lastRun, repeat, data. The data are
// those that clients see (dataForClient).
func appendRow(out []byte, j *jobs.Row) []byte {
	out = appendTime(append(out, '['), j.Created)
	out = strconv.AppendInt(append(out, ','), int64(j.ID), 10)
	out = appendString(append(out, ','), string(j.State))
	out = appendValue(append(out, ','), j.Name)
	out = appendTime(append(out, ','), j.NextRun)
	out = appendTime(append(out, ','), j.LastRun)
	out = appendValue(append(out, ','), j.Repeat)
	out = appendData(append(out, ','), dataForClient(j, j.Handouts))
	return append(out, ']')
}

// parseQuery parses "select * from jobs", optionally with "where jobID=N" or "where name='x'" and
// a semicolon. Words may have any letter case. id is N, or -1 without jobID; q.Name is the name,
// if one is given. ok is false for any other text, and for an invalid number or name.
func parseQuery(text string) (id jobs.ID, q jobs.Filter, ok bool) {
	id = -1
	words, ok := tokens(text)
	if !ok {
		return id, q, false
	}
	if n := len(words); n > 0 && words[n-1] == ";" {
		words = words[:n-1]
	}
	for i, want := range []string{"select", "*", "from", "jobs"} {
		if i >= len(words) || !same([]byte(words[i]), want) {
			return id, q, false
		}
	}
	words = words[4:]
	switch {
	case len(words) == 0:
		return id, q, true
	case len(words) != 4 || !same([]byte(words[0]), "where") || words[2] != "=":
		return id, q, false
	case same([]byte(words[1]), "jobID"):
		n, ok := whole([]byte(words[3]))
		return jobs.ID(n), q, ok
	case same([]byte(words[1]), "name") && words[3][0] == '\'':
		q.Name = words[3][1:]
		return id, q, jobstore.CheckName(q.Name) == nil
	}
	return id, q, false
}

// maxTokens is above the number of tokens of any valid query.
const maxTokens = 10

// tokens splits a query into words, signs and quoted texts. A quoted text is returned with its
// first quote and without the last one. ok is false for a quote without an end, and for more than
// maxTokens tokens.
func tokens(s string) (all []string, ok bool) {
	for i := 0; i < len(s); {
		begin := i
		switch c := s[i]; {
		case isBlank(c) || isEnd(c):
			i++
			continue
		case c == '\'':
			text, n, ok := quoted(s[i:])
			if !ok {
				return nil, false
			}
			all, i = append(all, text), i+n
		case isWord(c):
			for i < len(s) && isWord(s[i]) {
				i++
			}
			all = append(all, s[begin:i])
		default:
			i++
			all = append(all, s[begin:i])
		}
		if len(all) > maxTokens {
			return nil, false
		}
	}
	return all, true
}

// quoted parses the quoted text at the start of s, in which two quotes mean one. text begins with
// the quote and lacks the last one; n is the number of bytes read. ok is false if the last quote is
// missing.
func quoted(s string) (text string, n int, ok bool) {
	out := []byte{'\''}
	for i := 1; i < len(s); i++ {
		if s[i] == '\'' {
			if i+1 == len(s) || s[i+1] != '\'' {
				return string(out), i + 1, true
			}
			i++
		}
		out = append(out, s[i])
	}
	return "", 0, false
}

// isWord reports whether c is a letter, a digit or an underscore.
func isWord(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_'
}
