package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/spf13/pflag"
)

// Log formats.
const (
	LogText = "text"
	LogJSON = "json"
)

// Options are the flags that all daemons have.
type Options struct {
	ConfigFile string // --config; empty: flags only
	LogFormat  string // --logging-format; text or json, default text
	Verbosity  int    // -v; 4 and more enables debug messages
}

// AddFlags registers the flags. Call it on an Options that holds the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	if o.LogFormat == "" {
		o.LogFormat = LogText
	}
	fs.StringVar(&o.ConfigFile, "config", o.ConfigFile, "configuration file (YAML) with the same settings as the flags; flags take precedence")
	fs.VarP((*verbosity)(&o.Verbosity), "v", "v", "log verbosity; 4 and above logs debug messages")
	fs.Var((*logFormat)(&o.LogFormat), "logging-format", "log format: text or json")
}

// debugFrom is the verbosity from which upstream's daemons log debug messages.
const debugFrom = 4

// Logger returns a logger that writes to w.
func (o *Options) Logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelInfo}
	if o.Verbosity >= debugFrom {
		opts.Level = slog.LevelDebug
	}
	if o.LogFormat == LogJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

type verbosity int

func (v *verbosity) String() string { return fmt.Sprint(int(*v)) }
func (v *verbosity) Type() string   { return "int" }
func (v *verbosity) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a number from 0 up", s)
	}
	*v = verbosity(n)
	return nil
}

type logFormat string

func (f *logFormat) String() string { return string(*f) }
func (f *logFormat) Type() string   { return "string" }
func (f *logFormat) Set(s string) error {
	if s != LogText && s != LogJSON {
		return fmt.Errorf("%q is neither %s nor %s", s, LogText, LogJSON)
	}
	*f = logFormat(s)
	return nil
}
