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

// log writes one line of the server to l.to at the given level. It takes no lock.
func (l *logger) log(level slog.Level, format string, args []any) {
	ctx := context.Background()
	if l.to.Enabled(ctx, level) {
		l.to.LogAttrs(ctx, level, "embedded nats server", slog.String("says", l.text(format, args)))
	}
}

// text returns a line of the server: the formatted args. It replaces the password, which the server
// should never write, by "[secret]".
func (l *logger) text(format string, args []any) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, args...)), l.secret, "[secret]")
}

// Noticef logs a line at debug level. Such lines are about a start or a stop, and a program with an
// embedded server does not need them.
func (l *logger) Noticef(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

// Warnf logs a line at warn level. The advice against large messages goes to debug level, because
// large messages are wanted here.
func (l *logger) Warnf(format string, args ...any) {
	level := slog.LevelWarn
	if strings.HasPrefix(format, "Maximum payloads over") {
		level = slog.LevelDebug
	}
	l.log(level, format, args)
}

// Errorf logs a line at error level.
func (l *logger) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }

// Fatalf logs a line at error level and records the first fatal error, for failure. The server
// continues as far as it can, and Open must end it. It takes l.mu.
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
