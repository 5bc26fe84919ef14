package nodelogs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of a query.
const (
	maxServices = 4
	maxName     = 256
	maxPattern  = 1024
	maxTail     = 100000
)

// serviceName is the form of the names of units and of the files named after them. A
// name cannot begin with a dash, which would make it an option of journalctl.
var serviceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.@:-]*$`) })

// Query selects entries of the logs of services, or a file. The zero value of an option
// means that it is not set.
type Query struct {
	Services     []string
	File         string // below /var/log; then nothing else is set
	Since, Until time.Time
	Boot         *int // 0: the current one, -1: the one before, …
	Pattern      string
	Tail         int // number of entries
}

// Parse parses the parameters of a request at the time now. It returns all errors,
// joined.
func Parse(values url.Values, now time.Time) (*Query, error) {
	q := &Query{}
	var errs []error
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for name := range values {
		switch name {
		case "query", "sinceTime", "untilTime", "boot", "pattern", "tailLines":
		default:
			check(fmt.Errorf("unknown parameter %q", name))
		}
	}
	check(q.setNames(values["query"]))
	check(setTime(&q.Since, values, "sinceTime", now))
	check(setTime(&q.Until, values, "untilTime", now))
	if !q.Until.IsZero() && q.Until.Before(q.Since) {
		check(errors.New("untilTime is before sinceTime"))
	}
	check(q.setBoot(values.Get("boot")))
	check(q.setPattern(values.Get("pattern")))
	check(q.setTail(values.Get("tailLines")))
	if q.File != "" && q.selects() {
		check(errors.New("sinceTime, untilTime, boot, pattern and tailLines apply to services only"))
	}
	return q, errors.Join(errs...)
}

// setNames sets the services, or the file, which is a path.
func (q *Query) setNames(names []string) error {
	for _, name := range names {
		path := strings.TrimPrefix(name, "/")
		switch {
		case len(name) > maxName:
			return fmt.Errorf("query is longer than %d characters", maxName)
		case strings.Contains(name, "/"):
			if len(names) > 1 {
				return errors.New("query names a file: only one can be read at a time")
			}
			if !fs.ValidPath(path) || path == "." {
				return fmt.Errorf("query %q is not the path of a file below /var/log", name)
			}
			q.File = path
		case !serviceName().MatchString(name):
			return fmt.Errorf("query %q is not the name of a service", name)
		default:
			q.Services = append(q.Services, name)
		}
	}
	if len(names) == 0 {
		return errors.New("query is required")
	}
	if len(names) > maxServices {
		return fmt.Errorf("query: at most %d services", maxServices)
	}
	return nil
}

func setTime(t *time.Time, values url.Values, name string, now time.Time) error {
	text := values.Get(name)
	if text == "" {
		return nil
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%s %q: want a time like 2006-01-02T15:04:05Z", name, text)
	}
	if parsed.After(now) {
		return fmt.Errorf("%s %q is in the future", name, text)
	}
	*t = parsed
	return nil
}

func (q *Query) setBoot(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > 0 {
		return fmt.Errorf("boot %q: want 0 or a negative number", text)
	}
	q.Boot = &n
	return nil
}

// setPattern sets the regular expression. journalctl reads PCRE; of that, what Go's
// package reads, too, takes a time that is linear in the text.
func (q *Query) setPattern(text string) error {
	if len(text) > maxPattern {
		return fmt.Errorf("pattern is longer than %d characters", maxPattern)
	}
	if _, err := regexp.Compile(text); err != nil || strings.ContainsRune(text, 0) {
		return fmt.Errorf("pattern %q: want a regular expression of RE2", text)
	}
	q.Pattern = text
	return nil
}

func (q *Query) setTail(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxTail {
		return fmt.Errorf("tailLines %q: want 1 to %d", text, maxTail)
	}
	q.Tail = n
	return nil
}

// selects reports whether an option selects entries.
func (q *Query) selects() bool {
	return !q.Since.IsZero() || !q.Until.IsZero() || q.Boot != nil || q.Pattern != "" || q.Tail > 0
}

// journalTime is the form in which journalctl reads times, in UTC with --utc.
const journalTime = "2006-01-02 15:04:05 UTC"

// journalctl returns the arguments of journalctl. Each value is part of the argument
// that names its option, so that no value can be an option.
func (q *Query) journalctl() []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.Since.IsZero() {
		args = append(args, "--since="+q.Since.UTC().Format(journalTime))
	}
	if !q.Until.IsZero() {
		args = append(args, "--until="+q.Until.UTC().Format(journalTime))
	}
	if q.Tail > 0 {
		args = append(args, "--lines="+strconv.Itoa(q.Tail))
	}
	for _, name := range q.Services {
		args = append(args, "--unit="+name)
	}
	if q.Pattern != "" {
		args = append(args, "--case-sensitive=false", "--grep="+q.Pattern)
	}
	if q.Boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*q.Boot))
	}
	return args
}
