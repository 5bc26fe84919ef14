package etcd

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger is a zap core that writes to slog, one level lower: what etcd tells
// about itself is for those who look for it.
type logger struct {
	log     *slog.Logger
	started *atomic.Bool
	fields  []zapcore.Field
}

func newLogger(log *slog.Logger) *logger {
	return &logger{log: log.With("component", "etcd"), started: new(atomic.Bool)}
}

// zap is a logger whose fatal lines panic until the member has started, so that
// who starts it can say what is wrong; later they end the process, as etcd means it.
func (l *logger) zap() *zap.Logger {
	return zap.New(l, zap.WithFatalHook(l))
}

// OnWrite is called after a fatal line was written.
func (l *logger) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if !l.started.Load() {
		l.panic(entry, fields)
	}
	zapcore.WriteThenFatal.OnWrite(entry, fields)
}

func (l *logger) panic(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := entry.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok {
			text += ": " + err.Error()
		}
	}
	panic(text)
}

// Enabled, With, Check, Write and Sync are zapcore.Core.
func (l *logger) Enabled(level zapcore.Level) bool {
	return l.log.Enabled(context.Background(), slogLevel(level))
}

func (l *logger) With(fields []zapcore.Field) zapcore.Core {
	with := *l
	with.fields = append(with.fields[:len(with.fields):len(with.fields)], fields...)
	return &with
}

func (l *logger) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

func (l *logger) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	attrs := make([]slog.Attr, 0, len(l.fields)+len(fields))
	for _, list := range [][]zapcore.Field{l.fields, fields} {
		for _, f := range list {
			f.AddTo(enc)
			attrs = append(attrs, slog.Any(f.Key, enc.Fields[f.Key]))
		}
	}
	l.log.LogAttrs(context.Background(), slogLevel(entry.Level), entry.Message, attrs...)
	return nil
}

func (l *logger) Sync() error { return nil }

func slogLevel(level zapcore.Level) slog.Level {
	switch {
	case level >= zapcore.ErrorLevel:
		return slog.LevelError
	case level == zapcore.WarnLevel:
		return slog.LevelInfo
	case level == zapcore.InfoLevel:
		return slog.LevelDebug
	}
	return slog.LevelDebug - 4
}
