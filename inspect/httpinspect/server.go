package httpinspect

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/swarmiji/swarmiji/inspect"
)

// MaxArgument is the largest argument that a server reads, in bytes.
const MaxArgument = 1 << 20

// Config configures [NewHandler]. With the zero value every caller may do everything. A handler
// withholds no arguments; package dashboard does.
type Config struct {
	// Allow returns an error if the caller of r may not make a change of a target: a queue, a task,
	// a node. nil: all changes are allowed. A method that only reads is always allowed.
	Allow func(r *http.Request, do inspect.Do, target string) error
	// Actor names the caller of r for the audit log. "" or nil: the name of the implementation.
	Actor func(r *http.Request) string
}

// NewHandler returns a handler that serves the methods of api: the last part of the path is the
// name of the method. It authenticates no caller; package dashboard does. Safe for concurrent use.
func NewHandler(api inspect.API, c Config) http.Handler {
	return &handler{api: api, c: c, methods: methods()}
}

// Claimed returns the name that the caller of r has sent, see [ActorHeader], or "".
func Claimed(r *http.Request) string {
	who, err := url.QueryUnescape(r.Header.Get(ActorHeader))
	if err != nil {
		return ""
	}
	return who
}

type handler struct {
	api     inspect.API
	c       Config
	methods map[string]method
}

// ServeHTTP calls one method.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	m, ok := h.methods[name]
	if !ok {
		writeError(w, &inspect.Error{Code: inspect.CodeNotFound, Text: "no method has this name", Help: "the methods are those of inspect.API, such as ListQueues"})
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		write(w, http.StatusMethodNotAllowed, &inspect.Error{Code: inspect.CodeInvalid, Text: "methods are called by POST"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxArgument))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		write(w, http.StatusRequestEntityTooLarge, &inspect.Error{Code: inspect.CodeInvalid, Text: "the argument is too large"})
		return
	}
	if err != nil { // the client is gone, or its body is broken
		write(w, http.StatusBadRequest, &inspect.Error{Code: inspect.CodeInvalid, Text: "the argument cannot be read"})
		return
	}
	ctx := r.Context()
	if h.c.Actor != nil {
		if who := h.c.Actor(r); who != "" {
			ctx = inspect.WithActor(ctx, who)
		}
	}
	answer, err := m.call(ctx, h.api, body, func(target string) error {
		if h.c.Allow == nil {
			return nil
		}
		return h.c.Allow(r, m.do, target)
	})
	if err != nil {
		writeError(w, err)
		return
	}
	write(w, http.StatusOK, answer)
}

// writeError writes an error with the status of its code.
func writeError(w http.ResponseWriter, err error) {
	e := inspect.Wrap(err)
	status := http.StatusInternalServerError
	switch e.Code {
	case inspect.CodeNotFound:
		status = http.StatusNotFound
	case inspect.CodeInvalid:
		status = http.StatusBadRequest
	case inspect.CodeUnsupported:
		status = http.StatusNotImplemented
	case inspect.CodeConflict:
		status = http.StatusConflict
	case inspect.CodeDenied:
		status = http.StatusForbidden
	case inspect.CodeNoConsumer, inspect.CodeUnavailable:
		status = http.StatusServiceUnavailable
	}
	write(w, status, e)
}

// write writes v as JSON. An error means that the client is gone.
func write(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "the answer cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
