package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"
)

var requestLine = regexp.MustCompile(`^apiserver_request_total\{(.*)\} ([0-9.e+]+)$`)

// requests returns how many requests the API server has served, by verb and resource.
func (b *bench) requests(ctx context.Context) (map[string]float64, error) {
	text, err := b.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		m := requestLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		name := label(m[1], "verb") + " " + label(m[1], "resource")
		if sub := label(m[1], "subresource"); sub != "" {
			name += "/" + sub
		}
		out[name] += n
	}
	return out, nil
}

// label returns the value of a label of a series.
func label(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
