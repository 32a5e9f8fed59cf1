package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// ErrMalformed is returned by [Letters.Import] for a line that is not a letter.
var ErrMalformed = errors.New("deadletter: malformed letter")

// exportVersion is the version of the lines of Export. Import refuses other versions, since it
// could lose their fields.
const exportVersion = 1

// maxLine limits a line of an imported file, in bytes.
const maxLine = 256 << 20

// line is one letter in a file.
type line struct {
	Version  int       `json:"swarmiji_dead"`
	Queue    string    `json:"queue"`
	Reason   string    `json:"reason,omitzero"`
	Stack    string    `json:"stack,omitzero"`
	Attempts int       `json:"attempts,omitzero"`
	At       time.Time `json:"at,omitzero"`
	Message  wire.Kept `json:"message"`
}

// Export writes the letters of a queue that match f to w, one JSON object per line, and returns
// their number. Messages are unchanged, also sealed ones; reasons and stacks are as the broker
// keeps them. The letters stay. Returns the errors of [Letters.List] and of w.
func (l *Letters) Export(ctx context.Context, queue string, f Filter, w io.Writer) (n int, err error) {
	out := bufio.NewWriter(w)
	err = l.scan(ctx, queue, f, func(letter *Letter) (broker.DeadAction, error) {
		if err := letter.export(out); err != nil {
			return broker.DeadStop, err
		}
		n++
		return broker.DeadKeep, nil
	})
	return n, errors.Join(err, out.Flush())
}

// Line returns the letter as [Letters.Export] writes it, without the line break.
func (l *Letter) Line() ([]byte, error) {
	var b bytes.Buffer
	err := l.export(&b)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func (l *Letter) export(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	d := &l.Dead
	return enc.Encode(line{exportVersion, d.Queue, d.Reason, d.Stack, d.Attempts, d.At.UTC(), wire.Kept{Message: d.Message}})
}

// Import adds the letters that [Letters.Export] wrote to the dead letters of a queue and returns
// their number. queue "": the original queue of each letter. A second import of the same file adds
// each letter again; if a store keeps records, only one of the two runs.
//
// At a line that is not a letter it stops with [ErrMalformed] and the number of the line. The lines
// before are imported. Other errors are the broker's.
func (l *Letters) Import(ctx context.Context, queue string, r io.Reader) (n int, err error) {
	if queue != "" {
		if err := task.CheckName(queue); err != nil {
			return 0, err
		}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for at := 1; lines.Scan(); at++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		to, d, err := readLine(lines.Bytes())
		if err != nil {
			return n, fmt.Errorf("line %d: %w", at, err)
		}
		if queue != "" {
			to = queue
		}
		if err := l.put(ctx, to, d); err != nil {
			return n, fmt.Errorf("line %d: %w", at, err)
		}
		n++
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("%w: a line of more than %d bytes", ErrMalformed, maxLine)
		}
		return n, err
	}
	return n, nil
}

func (l *Letters) put(ctx context.Context, queue string, d broker.Dead) error {
	ctx, cancel := perLetter(ctx)
	defer cancel()
	d.At = time.Time{} // now: by its own age the bounds of the dead letters might remove it at once
	return l.dead.PutDead(ctx, queue, d)
}

func readLine(data []byte) (queue string, d broker.Dead, err error) {
	var in line
	if err := json.Unmarshal(data, &in); err != nil {
		return "", d, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch {
	case in.Version != exportVersion:
		return "", d, fmt.Errorf("%w: its version is %d, but only %d is supported", ErrMalformed, in.Version, exportVersion)
	case in.Message.Message == nil:
		return "", d, fmt.Errorf("%w: it has no message", ErrMalformed)
	case in.Message.Generation < 0 || in.Attempts < 0:
		return "", d, fmt.Errorf("%w: a count is negative", ErrMalformed)
	}
	if err := task.CheckName(in.Queue); err != nil {
		return "", d, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return in.Queue, broker.Dead{Message: in.Message.Message, Reason: in.Reason, Stack: in.Stack, Attempts: in.Attempts, At: in.At}, nil
}
