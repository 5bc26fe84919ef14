package output

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/cli/jsonpath"
)

// Columns writes rows in aligned columns, three spaces apart. The zero value is
// ready to use.
type Columns struct {
	widths []int // never shrink, so that later rows stay aligned
}

// gap is the space between columns, and least the smallest width of one: those of
// kubectl.
const (
	gap   = 3
	least = 3
)

// Write writes rows, and escapes control characters. It does not pad the last column.
func (c *Columns) Write(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		for i, cell := range row {
			cell = Plain(cell)
			if i == len(c.widths) {
				c.widths = append(c.widths, least)
			}
			c.widths[i] = max(c.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			cell = Plain(cell)
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", c.widths[i]-utf8.RuneCountInString(cell)+gap))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// customColumns implements custom-columns:
// NAME:.metadata.name,IMAGE:.spec.containers[*].image.
type customColumns struct {
	headers   []string
	paths     []*jsonpath.Template
	noHeaders bool
}

func newColumns(spec string, noHeaders bool) (Printer, error) {
	p := &customColumns{noHeaders: noHeaders}
	pairs := strings.Split(strings.TrimSpace(spec), ",")
	if lines := strings.Split(strings.TrimSpace(spec), "\n"); len(lines) == 2 { // a file: a line of headers and a line of paths
		headers, paths := strings.Fields(lines[0]), strings.Fields(lines[1])
		if len(headers) != len(paths) {
			return nil, fmt.Errorf("custom-columns: %d headers over %d paths", len(headers), len(paths))
		}
		pairs = nil
		for i := range headers {
			pairs = append(pairs, headers[i]+":"+paths[i])
		}
	}
	for _, pair := range pairs {
		header, path, ok := strings.Cut(pair, ":")
		if !ok || header == "" {
			return nil, fmt.Errorf("custom-columns: %q is not HEADER:PATH", pair)
		}
		t, err := jsonpath.ParsePath(path)
		if err != nil {
			return nil, fmt.Errorf("custom-columns: %w", err)
		}
		p.headers = append(p.headers, header)
		p.paths = append(p.paths, t)
	}
	return p, nil
}

// Print implements Printer. A missing value is <none>.
func (p *customColumns) Print(w io.Writer, obj *unstructured.Unstructured) error {
	var rows [][]string
	if !p.noHeaders {
		rows = append(rows, p.headers)
	}
	add := func(o runtime.Object) error {
		row := make([]string, len(p.paths))
		for i, t := range p.paths {
			found, err := t.Find(o.(*unstructured.Unstructured).Object, true)
			if err != nil {
				return err
			}
			words := make([]string, len(found))
			for j, v := range found {
				words[j] = jsonpath.Text(v)
			}
			row[i] = strings.Join(words, ",")
			if len(found) == 0 || (len(found) == 1 && found[0] == nil) {
				row[i] = "<none>"
			}
		}
		rows = append(rows, row)
		return nil
	}
	var err error
	if obj.IsList() {
		err = obj.EachListItem(add)
	} else {
		err = add(obj)
	}
	if err != nil {
		return err
	}
	return (&Columns{}).Write(w, rows)
}
