package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/limit"
)

//go:embed usage.lua
var usageSource string

var _ limit.Reader = (*Limiter)(nil)

// Usage implements [limit.Reader]: it reads the use of the limit key with one call to the server.
// Returns [limit.ErrUnavailable] for every error, also if ctx has ended.
func (l *Limiter) Usage(ctx context.Context, key string) (limit.Usage, error) {
	keys := []string{l.prefix + "ends:" + key, l.prefix + "weights:" + key, l.prefix + "rate:" + key}
	v, err := l.conn.Eval(ctx, l.usage, keys, limit.MaxHolders)
	if err != nil {
		return limit.Usage{}, fmt.Errorf("redislimit usage: %w: %w", limit.ErrUnavailable, err)
	}
	list, ok := v.([]any)
	number := func(i int) int64 {
		n, isNumber := list[i].(int64)
		ok = ok && isNumber
		return n
	}
	if !ok || len(list)%3 != 2 {
		return limit.Usage{}, fmt.Errorf("redislimit usage: %w: the answer is malformed", limit.ErrUnavailable)
	}
	u := limit.Usage{Held: int(number(0)), Ahead: time.Duration(number(1)) * time.Microsecond}
	for i := 2; i < len(list); i += 3 {
		name, isText := list[i].(string)
		ok = ok && isText
		u.Holders = append(u.Holders, limit.Holder{Name: name, Weight: int(number(i + 1)), Lease: time.Duration(number(i+2)) * time.Microsecond})
	}
	if !ok {
		return limit.Usage{}, fmt.Errorf("redislimit usage: %w: the answer is malformed", limit.ErrUnavailable)
	}
	return u, nil
}
