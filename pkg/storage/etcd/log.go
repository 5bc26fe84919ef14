package etcd

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger is a zap core that writes to slog, one level lower, because etcd's
// messages are of interest only when debugging etcd. While the member starts and
// settles, everything is logged at debug level: errors that matter are returned.
type logger struct {
	log     *slog.Logger
	started *atomic.Pointer[time.Time] // nil while the member starts
	fields  []zapcore.Field
}

// settling is how long after its start a member may log errors about its own state:
// a new member finds its term missing before it has written it.
const settling = 5 * time.Second

func newLogger(log *slog.Logger) *logger {
	return &logger{log: log.With("component", "etcd"), started: new(atomic.Pointer[time.Time])}
}

func (l *logger) start() {
	now := time.Now()
	l.started.Store(&now)
}

func (l *logger) settled() bool {
	t := l.started.Load()
	return t != nil && time.Since(*t) > settling
}

// zap returns a logger whose fatal messages panic until the member has started, so
// that the caller of start gets an error; later they end the process, as etcd
// intends.
func (l *logger) zap() *zap.Logger {
	return zap.New(l, zap.WithFatalHook(l))
}

// OnWrite implements zapcore.CheckWriteHook. zap calls it after a fatal message.
func (l *logger) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if l.started.Load() == nil {
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

// Enabled implements zapcore.Core, as do With, Check, Write and Sync.
func (l *logger) Enabled(level zapcore.Level) bool {
	return l.log.Enabled(context.Background(), l.level(level))
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
	l.log.LogAttrs(context.Background(), l.level(entry.Level), entry.Message, attrs...)
	return nil
}

func (l *logger) Sync() error { return nil }

func (l *logger) level(level zapcore.Level) slog.Level {
	switch {
	case level >= zapcore.DPanicLevel:
		return slog.LevelError
	case !l.settled() || level == zapcore.InfoLevel:
		return slog.LevelDebug
	case level == zapcore.ErrorLevel:
		return slog.LevelWarn
	case level == zapcore.WarnLevel:
		return slog.LevelInfo
	}
	return slog.LevelDebug - 4
}
