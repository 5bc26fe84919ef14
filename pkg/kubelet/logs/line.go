package logs

import (
	"bytes"
	"fmt"
	"time"
)

// line is one record of a log file.
type line struct {
	time    time.Time
	stream  string
	partial bool   // the next record of this stream continues the line
	text    []byte // with its newline, unless partial
}

// parse parses a record. A complete record ends with a newline:
//
//	2016-10-06T00:17:09.669794202Z stdout P first half, \n
//	2016-10-06T00:17:10.113242941Z stdout F second half\n
func parse(record []byte) (line, error) {
	var l line
	stamp, rest, ok := bytes.Cut(record, space)
	if !ok {
		return l, fmt.Errorf("no timestamp in %.64q", record)
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return l, fmt.Errorf("unexpected timestamp format: %w", err)
	}
	stream, rest, ok := bytes.Cut(rest, space)
	if !ok || string(stream) != "stdout" && string(stream) != "stderr" {
		return l, fmt.Errorf("unexpected stream type %.64q", stream)
	}
	tags, text, ok := bytes.Cut(rest, space)
	if !ok {
		// An empty record may lack the space after its tags.
		tags, text = bytes.TrimSuffix(rest, newline), rest[len(bytes.TrimSuffix(rest, newline)):]
	}
	first, _, _ := bytes.Cut(tags, colon) // later versions may add tags
	l = line{time: t, stream: string(stream), partial: string(first) == "P", text: text}
	if l.partial {
		l.text = bytes.TrimSuffix(text, newline)
	}
	return l, nil
}

var (
	space   = []byte(" ")
	newline = []byte("\n")
	colon   = []byte(":")
)
