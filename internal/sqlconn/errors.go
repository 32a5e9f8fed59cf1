package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/internal/reach"
)

// The classes of this package's errors. Compare with [errors.Is]. The errors of this package
// contain no password and no URL.
var (
	// ErrClosed reports that the Conn was closed.
	ErrClosed = errors.New("sql connection closed")
	// ErrUnavailable reports that the database was not usable until ctx ended: it could not be
	// reached, or another process had the file locked. It also reports a transaction on PostgreSQL
	// that needs longer than the Timeout of [Config]. Nothing was committed.
	ErrUnavailable = errors.New("no sql database")
	// ErrIndeterminate reports that ctx or the connection ended after the commit was sent and before
	// its answer arrived. The transaction may have been committed.
	ErrIndeterminate = errors.New("sql commit without an answer")
	// ErrConflict reports that concurrent transactions conflicted until ctx ended. Nothing was
	// committed.
	ErrConflict = errors.New("sql transactions in conflict")
	// ErrFull reports a lack of space: a full disk, no memory, or a value that is too large. Nothing
	// was committed.
	ErrFull = errors.New("sql database full")
	// ErrAccess reports that the server refused the credentials or that the database does not exist.
	// For SQLite, the file or its directory cannot be used.
	ErrAccess = errors.New("sql access refused")
	// ErrCorrupt reports that the file is damaged or not a database.
	ErrCorrupt = errors.New("sql database damaged")
	// ErrRefused reports another error of the database, such as a violated constraint. Nothing was
	// committed.
	ErrRefused = errors.New("sql statement refused")
	// ErrNewerSchema reports that a newer version of this program has migrated the tables.
	ErrNewerSchema = errors.New("sql tables of a newer version")
)

// ErrNoRows is the error of [Row.Scan] for an empty result. The transaction does not fail.
var ErrNoRows = errors.New("sql: no rows")

// failure is an error with its class. The cause is the error of the driver or the network.
type failure struct {
	class error
	cause error
}

// Error returns the texts of class and cause. A cause that says which server cannot be used, and
// why, needs no class.
func (e *failure) Error() string {
	if r, ok := errors.AsType[*reach.Error](e.cause); ok {
		return r.Error()
	}
	return e.class.Error() + ": " + e.cause.Error()
}

// Unwrap returns class and cause.
func (e *failure) Unwrap() []error { return []error{e.class, e.cause} }

// Failure returns an error with this class and cause.
func Failure(class, cause error) error { return &failure{class, cause} }

// Cause returns the cause of an error without its class.
func Cause(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.cause
	}
	return err
}

var errClosed = errors.New("closed")

// Closed returns the error of a call after Close.
func Closed() error { return &failure{ErrClosed, errClosed} }

// The errors of the client libraries, by their methods. This package links neither library.
type (
	postgresError interface { // a *pgconn.PgError
		error
		SQLState() string
	}
	liteError interface { // a *sqlite.Error
		error
		Code() int
	}
)

// Class returns the class of an error of this package: one of the sentinels, or nil if it has no
// class. It also looks into wrapped errors.
func Class(err error) error {
	for _, class := range []error{
		ErrClosed, ErrIndeterminate, ErrUnavailable, ErrConflict, ErrFull, ErrAccess, ErrCorrupt, ErrRefused, ErrNewerSchema,
		ErrForeign,
	} {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// IsUnique reports whether a statement failed because a row with the same key exists.
func IsUnique(err error) bool {
	if e, ok := errors.AsType[postgresError](err); ok {
		return e.SQLState() == "23505"
	}
	if e, ok := errors.AsType[liteError](err); ok {
		return e.Code() == liteConstraintPrimaryKey || e.Code() == liteConstraintUnique || e.Code() == liteConstraintRowID
	}
	return false
}

// IsData reports whether the database refused a value: it is out of range, too large, or breaks a
// constraint. The same statement with the same values fails again.
func IsData(err error) bool {
	if e, ok := errors.AsType[postgresError](err); ok {
		state := e.SQLState()
		return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") || strings.HasPrefix(state, "54")
	}
	if e, ok := errors.AsType[liteError](err); ok {
		code := e.Code() & 0xff
		return code == liteTooBig || code == liteConstraint || code == liteMismatch
	}
	return false
}

// IsLocked reports whether a statement on PostgreSQL has failed because another transaction held a
// lock for too long. It returns false for errors of SQLite.
func IsLocked(err error) bool {
	e, ok := errors.AsType[postgresError](err)
	return ok && e.SQLState() == "55P03"
}

// Codes of SQLite. A code with more than 8 bits is an extended code; its lowest 8 bits are the
// plain code.
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
	liteConstraint           = 19
	liteMismatch             = 20
	liteAuth                 = 23
	liteNotADatabase         = 26
	liteConstraintPrimaryKey = liteConstraint | 6<<8
	liteConstraintUnique     = liteConstraint | 8<<8
	liteConstraintRowID      = liteConstraint | 10<<8
)

// Classify adds the class to an error of a driver. Use it for errors of statements before a commit.
// A missing row gives ErrNoRows. Classified errors and nil are returned unchanged.
func Classify(err error) error {
	switch {
	case err == nil || Class(err) != nil:
		return err
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, ErrNoRows):
		return ErrNoRows
	}
	return &failure{classOf(err), withNext(err)}
}

// withNext adds the next step to the error of a full disk. It returns other errors unchanged.
func withNext(err error) error {
	full := func(server string) error {
		return &reach.Error{Server: server, Found: err.Error(), Next: "free space on its disk and try again", Cause: err}
	}
	if e, ok := errors.AsType[liteError](err); ok && e.Code()&0xff == liteFull {
		return full("the SQLite file")
	}
	if e, ok := errors.AsType[postgresError](err); ok && e.SQLState() == "53100" {
		return full("PostgreSQL")
	}
	return err
}

// classOf returns the class of an error of a driver: that of its code, or ErrUnavailable for an
// ended context, a lost connection and all errors without a code. ErrRefused stands for codes of no
// class, and for values of a wrong type or number.
func classOf(err error) error {
	if e, ok := errors.AsType[liteError](err); ok {
		return classOfLite(e.Code())
	}
	if e, ok := errors.AsType[postgresError](err); ok {
		return classOfState(e)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ErrUnavailable
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		return ErrUnavailable
	}
	if isScan(err) {
		return ErrRefused
	}
	return ErrUnavailable // all other errors come from the network
}

// isScan reports whether err is about values of a wrong type or number. It is a fault of the
// program, and a repetition does not help.
func isScan(err error) bool {
	text := err.Error()
	for _, part := range []string{"sql: Scan", "sql: expected", "sql: converting", "missing argument", "cannot scan", "can't scan", "unable to encode", "number of field descriptions", "expected 0 arguments", "mismatched param"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// classOfLite returns the class of an error of SQLite by its code, of which it uses the primary
// part only. ErrRefused stands for codes of no class.
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

// isBusy reports whether err says that another process holds the lock of the file.
func isBusy(err error) bool {
	e, ok := errors.AsType[liteError](err)
	return ok && (e.Code()&0xff == liteBusy || e.Code()&0xff == liteLocked)
}

// states maps prefixes of PostgreSQL's SQLSTATE to classes. The first matching prefix applies.
var states = []struct {
	prefix string
	class  error
}{
	{"08", ErrUnavailable},
	{"57P0", ErrUnavailable}, // the server stops, has crashed, or starts
	{"53300", ErrUnavailable},
	{"25006", ErrUnavailable}, // read-only: a standby server
	{"25P03", ErrUnavailable}, // idle for too long in a transaction
	{"53", ErrFull},
	{"54", ErrFull},
	{"58", ErrUnavailable},
	{"28", ErrAccess},
	{"3D000", ErrAccess},
	{"42501", ErrAccess},
	{"40", ErrConflict},
	{"55P03", ErrConflict},
	{"57014", ErrConflict}, // cancelled by statement_timeout or by an administrator
	{"26000", ErrConflict}, // a proxy has lost a prepared statement
	{"XX001", ErrCorrupt},
	{"XX002", ErrCorrupt},
}

// classOfState returns the class of an error of PostgreSQL by its SQLSTATE, from the table states.
// ErrRefused stands for codes of no class.
func classOfState(e postgresError) error {
	if e.SQLState() == "0A000" && strings.Contains(e.Error(), "cached plan") {
		return ErrConflict // a migration changed the table; the client prepares the statement again
	}
	for _, s := range states {
		if strings.HasPrefix(e.SQLState(), s.prefix) {
			return s.class
		}
	}
	return ErrRefused
}

// Ended returns the error of a call whose ctx ended before a commit was sent. last is the error of
// its last attempt, with whose class the call ends. A nil last means that no attempt was made: the
// class is ErrUnavailable.
func Ended(ctx context.Context, last error) error {
	if last == nil {
		return &failure{ErrUnavailable, context.Cause(ctx)}
	}
	return fmt.Errorf("%w (%w)", last, context.Cause(ctx))
}
