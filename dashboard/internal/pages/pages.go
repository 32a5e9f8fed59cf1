package pages

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/swarmiji/swarmiji/inspect"
)

type Config struct {
	API           inspect.API
	User          func(*http.Request) string
	May           func(r *http.Request, do inspect.Do, target string) error
	HideArguments bool
	Logger        *slog.Logger
	Version       string
}

type Pages struct{ c Config }

func New(c Config) (*Pages, error) { return &Pages{c}, nil }

func (p *Pages) Close(context.Context) error { return nil }

func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Write([]byte("<!doctype html><title>Swarmiji</title>"))
}
