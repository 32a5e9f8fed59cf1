package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
)

// The classes of this package's errors. Compare with [errors.Is]. No error of this package holds a password or a URL.
var (
	// ErrClosed: the Conn was closed.
	ErrClosed = errors.New("sql connection closed")
	// ErrUnavailable: there was no usable database until ctx ended: no connection, or a file that another process had locked.
	// Nothing was committed.
	ErrUnavailable = errors.New("no sql database")
	// ErrIndeterminate: the commit was sent, and ctx or the connection ended before the answer came.
	ErrIndeterminate = errors.New("sql commit without an answer")
	// ErrConflict: concurrent transactions got into each other's way until ctx ended. Nothing was committed.
	ErrConflict = errors.New("sql transactions in conflict")
	// ErrFull: the database has no room: a full disk, no memory, too large a value. Nothing was committed.
	ErrFull = errors.New("sql database full")
	// ErrAccess: the server refused the credentials or knows no such database; a file or its directory may not be used.
	ErrAccess = errors.New("sql access refused")
	// ErrCorrupt: the file is no database, or a damaged one.
	ErrCorrupt = errors.New("sql database damaged")
	// ErrRefused: the database answered with an error of another kind, such as a constraint. Nothing was committed.
	ErrRefused = errors.New("sql statement refused")
	// ErrNewerSchema: the tables were made by a newer version of this program.
	ErrNewerSchema = errors.New("sql tables of a newer version")
)

// ErrNoRows is the answer of [Row.Scan] when there is none. It dooms no transaction.
var ErrNoRows = errors.New("sql: no rows")

// failure is an error with its class. The cause is the driver's or the network's own.
type failure struct {
	class error
	cause error
}

func (e *failure) Error() string   { return e.class.Error() + ": " + e.cause.Error() }
func (e *failure) Unwrap() []error { return []error{e.class, e.cause} }

// Class returns the class of an error of this package, nil if it has none.
func Class(err error) error {
	for _, class := range []error{
		ErrClosed, ErrIndeterminate, ErrUnavailable, ErrConflict, ErrFull, ErrAccess, ErrCorrupt, ErrRefused, ErrNewerSchema,
	} {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// IsUnique reports whether a statement was refused because a row with the same key exists.
func IsUnique(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "23505"
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() == liteConstraintPrimaryKey || e.Code() == liteConstraintUnique || e.Code() == liteConstraintRowID
	}
	return false
}

// Codes of SQLite; those of more than 8 bits are extended ones, whose lowest 8 are the plain code.
const (
	liteBusy                 = 5
	liteLocked               = 6
	liteNoMemory             = 7
	litePerm                 = 3
	liteReadOnly             = 8
	liteInterrupt            = 9
	liteIOError              = 10
	liteCorrupt              = 11
	liteFull                 = 13
	liteCantOpen             = 14
	liteTooBig               = 18
	liteAuth                 = 23
	liteNotADatabase         = 26
	liteConstraintPrimaryKey = 19 | 6<<8
	liteConstraintUnique     = 19 | 8<<8
	liteConstraintRowID      = 19 | 10<<8
)

// classify puts the class beside an error of a driver. It is for errors of statements before a commit.
func classify(err error) error {
	switch {
	case err == nil || Class(err) != nil:
		return err
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, pgx.ErrNoRows), errors.Is(err, ErrNoRows):
		return ErrNoRows
	}
	return &failure{classOf(err), err}
}

func classOf(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return classOfLite(e.Code())
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classOfState(e)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), pgconn.Timeout(err):
		return ErrUnavailable
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		return ErrUnavailable
	}
	if isScan(err) {
		return ErrRefused
	}
	return ErrUnavailable // whatever else goes wrong is the network's
}

// isScan reports whether an error tells of values that do not fit: it is the program's, and no repetition mends it.
func isScan(err error) bool {
	if _, ok := errors.AsType[pgx.ScanArgError](err); ok {
		return true
	}
	text := err.Error()
	for _, part := range []string{"sql: Scan", "sql: expected", "sql: converting", "missing argument", "cannot scan", "unable to encode", "number of field descriptions", "expected 0 arguments", "mismatched param"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func classOfLite(code int) error {
	switch code & 0xff {
	case liteBusy, liteLocked, liteInterrupt:
		return ErrUnavailable
	case liteFull, liteNoMemory, liteTooBig:
		return ErrFull
	case litePerm, liteReadOnly, liteCantOpen, liteAuth:
		return ErrAccess
	case liteCorrupt, liteNotADatabase:
		return ErrCorrupt
	case liteIOError:
		return ErrUnavailable
	default:
		return ErrRefused
	}
}

// isBusy reports whether another process holds the lock of a file.
func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == liteBusy || e.Code()&0xff == liteLocked)
}

// states are what the beginnings of PostgreSQL's SQLSTATEs mean; the first that fits counts.
var states = []struct {
	prefix string
	class  error
}{
	{"08", ErrUnavailable},
	{"57P0", ErrUnavailable}, // it stops, has crashed, or starts
	{"53300", ErrUnavailable},
	{"25006", ErrUnavailable}, // read-only: a standby
	{"25P03", ErrUnavailable}, // idle in a transaction for too long
	{"53", ErrFull},
	{"54", ErrFull},
	{"58", ErrUnavailable},
	{"28", ErrAccess},
	{"3D000", ErrAccess},
	{"42501", ErrAccess},
	{"40", ErrConflict},
	{"55P03", ErrConflict},
	{"26000", ErrConflict}, // a prepared statement that a proxy has lost
	{"XX001", ErrCorrupt},
	{"XX002", ErrCorrupt},
}

func classOfState(e *pgconn.PgError) error {
	if e.Code == "0A000" && strings.Contains(e.Message, "cached plan") {
		return ErrConflict // a migration changed the table; the client prepares anew
	}
	for _, s := range states {
		if strings.HasPrefix(e.Code, s.prefix) {
			return s.class
		}
	}
	return ErrRefused
}

// isFatal reports whether an answer of PostgreSQL came with the end of the session: what was under way may have been done.
func isFatal(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC" ||
		e.SeverityUnlocalized == "" && (e.Severity == "FATAL" || e.Severity == "PANIC"))
}

// ended is the error of a call whose ctx ended before anything was committed. last is why it waited; nil: for its turn.
func ended(ctx context.Context, last error) error {
	if last == nil {
		return &failure{ErrUnavailable, context.Cause(ctx)}
	}
	return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
}
