package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logger implements the server's Logger and writes its lines to slog.
type logger struct {
	to     *slog.Logger
	secret string

	mu    sync.Mutex
	fatal error // the first error that the server cannot continue after
}

// log writes one line of the server at the given level.
func (l *logger) log(level slog.Level, format string, args []any) {
	ctx := context.Background()
	if l.to.Enabled(ctx, level) {
		l.to.LogAttrs(ctx, level, "embedded nats server", slog.String("says", l.text(format, args)))
	}
}

// text returns a line of the server. It replaces the password, which the server should never write,
// by "[secret]".
func (l *logger) text(format string, args []any) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, args...)), l.secret, "[secret]")
}

// Noticef logs the lines of a start and a stop at debug level, because a program with an embedded
// server does not need them.
func (l *logger) Noticef(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

// Warnf logs the advice against large messages at debug level, because large messages are wanted
// here.
func (l *logger) Warnf(format string, args ...any) {
	level := slog.LevelWarn
	if strings.HasPrefix(format, "Maximum payloads over") {
		level = slog.LevelDebug
	}
	l.log(level, format, args)
}

// Errorf logs an error line of the server.
func (l *logger) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }

// Fatalf logs an error line and records the first fatal error, for failure. The server continues
// as far as it can, and Open must end it.
func (l *logger) Fatalf(format string, args ...any) {
	l.mu.Lock()
	if l.fatal == nil {
		l.fatal = errors.New(l.text(format, args))
	}
	l.mu.Unlock()
	l.log(slog.LevelError, format, args)
}

// Debugf logs a line below debug level. The server does not call it, because its debug level is
// off.
func (l *logger) Debugf(format string, args ...any) { l.log(slog.LevelDebug-4, format, args) }

// Tracef logs a line below debug level. The server does not call it, because its trace level is
// off.
func (l *logger) Tracef(format string, args ...any) { l.log(slog.LevelDebug-8, format, args) }

// failure returns the first fatal error, or nil. It takes l.mu.
func (l *logger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
