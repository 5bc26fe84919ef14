package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// plainLog is a slog.Handler that prints records as plain text: warnings and
// errors to w, others to out. It ignores groups.
type plainLog struct {
	w, out io.Writer
	attrs  []slog.Attr
}

// Enabled implements slog.Handler.
func (*plainLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (p *plainLog) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	w := p.out
	if r.Level >= slog.LevelWarn {
		b.WriteString("error: ")
		w = p.w
	}
	b.WriteString(r.Message)
	add := func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	}
	for _, a := range p.attrs {
		add(a)
	}
	r.Attrs(add)
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// WithAttrs implements slog.Handler.
func (p *plainLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &plainLog{w: p.w, out: p.out, attrs: append(append([]slog.Attr{}, p.attrs...), attrs...)}
}

// WithGroup implements slog.Handler.
func (p *plainLog) WithGroup(string) slog.Handler { return p }
