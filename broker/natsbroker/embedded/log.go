package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logger hands what the server says to slog. It implements the server's Logger.
type logger struct {
	to     *slog.Logger
	secret string

	mu    sync.Mutex
	fatal error // the first thing the server could not live with
}

func (l *logger) log(level slog.Level, format string, args []any) {
	ctx := context.Background()
	if l.to.Enabled(ctx, level) {
		l.to.LogAttrs(ctx, level, "embedded nats server", slog.String("says", l.text(format, args)))
	}
}

// text is a line of the server. It does not write passwords; should it ever, this one does not pass.
func (l *logger) text(format string, args []any) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, args...)), l.secret, "[secret]")
}

// Noticef is for the lines of a start and of a stop, of which who embeds a server wants to see none.
func (l *logger) Noticef(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

// Warnf leaves out the advice against large messages, which are asked for.
func (l *logger) Warnf(format string, args ...any) {
	level := slog.LevelWarn
	if strings.HasPrefix(format, "Maximum payloads over") {
		level = slog.LevelDebug
	}
	l.log(level, format, args)
}

func (l *logger) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }

// Fatalf keeps the reason: the server goes on as far as it can, and Open has to end it.
func (l *logger) Fatalf(format string, args ...any) {
	l.mu.Lock()
	if l.fatal == nil {
		l.fatal = errors.New(l.text(format, args))
	}
	l.mu.Unlock()
	l.log(slog.LevelError, format, args)
}

// Debugf and Tracef are never called: their levels are off.
func (l *logger) Debugf(format string, args ...any) { l.log(slog.LevelDebug-4, format, args) }
func (l *logger) Tracef(format string, args ...any) { l.log(slog.LevelDebug-8, format, args) }

func (l *logger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
