package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Sources are the locations of manifests.
type Sources struct {
	Files     []string // files, directories, http(s) URLs, or - for Stdin
	Recursive bool     // include subdirectories
	Stdin     io.Reader
	HTTP      *http.Client // nil: a client with default settings
}

// Document is an object and its source.
type Document struct {
	Object *unstructured.Unstructured
	Source string // "app.yaml", "app.yaml document 2"
}

const (
	maxDownload     = 64 << 20
	downloadTimeout = 30 * time.Second
)

// Read returns all objects in the order of the sources. It replaces lists by
// their items, and stops at the first error.
func (s Sources) Read(ctx context.Context) ([]Document, error) {
	var out []Document
	for _, name := range s.Files {
		docs, err := s.readOne(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, docs...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no objects in %s", strings.Join(s.Files, ", "))
	}
	return out, nil
}

// readOne reads the objects of one source.
func (s Sources) readOne(ctx context.Context, name string) ([]Document, error) {
	switch {
	case name == "-":
		if s.Stdin == nil {
			return nil, errors.New("-f -: there is no standard input")
		}
		data, err := io.ReadAll(s.Stdin)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return Parse(data, "standard input")
	case strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://"):
		data, err := s.download(ctx, name)
		if err != nil {
			return nil, err
		}
		return Parse(data, name)
	}
	files, err := s.expand(name)
	if err != nil {
		return nil, err
	}
	var out []Document
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		docs, err := Parse(data, file)
		if err != nil {
			return nil, err
		}
		out = append(out, docs...)
	}
	return out, nil
}

// expand returns the manifests in a directory, sorted by name.
func (s Sources) expand(name string) ([]string, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if matches, globErr := filepath.Glob(name); globErr == nil && len(matches) > 0 {
			return matches, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the path %q cannot be read: %w", name, err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != name && !s.Recursive:
			return fs.SkipDir
		case !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the folder %q has no .yaml, .yml or .json files (folders in it are read with -R)", name)
	}
	return files, err
}

// download gets a URL, with limits for time and size.
func (s Sources) download(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	c := s.HTTP
	if c == nil {
		c = &http.Client{}
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("unable to read URL %q, server reported %s", url, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDownload+1))
	if err == nil && len(data) > maxDownload {
		err = fmt.Errorf("%s is larger than %d bytes", url, maxDownload)
	}
	return data, err
}

// Parse parses a stream of YAML or JSON documents. source is the name for
// errors.
func Parse(data []byte, source string) ([]Document, error) {
	var out []Document
	for i, doc := range split(data) {
		where := source
		if i > 0 {
			where = fmt.Sprintf("%s document %d", source, i+1)
		}
		objects, err := parseOne(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		for _, o := range objects {
			out = append(out, Document{o, where})
		}
	}
	return out, nil
}

// split splits a stream into documents: YAML at lines of three dashes, JSON by
// value.
func split(data []byte) [][]byte {
	trimmed := bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	if bytes.HasPrefix(trimmed, []byte("{")) {
		var out [][]byte
		d := json.NewDecoder(bytes.NewReader(trimmed))
		for {
			var raw json.RawMessage
			err := d.Decode(&raw)
			if errors.Is(err, io.EOF) {
				return out
			}
			if err != nil {
				break // may be flow-style YAML
			}
			out = append(out, raw)
		}
	}
	var out [][]byte
	var doc []byte
	for line := range bytes.Lines(trimmed) {
		if bytes.HasPrefix(line, []byte("---")) && (len(bytes.TrimRight(line, " \t\r\n")) == 3 || line[3] == ' ' || line[3] == '\t') {
			out = append(out, doc)
			doc = append([]byte(nil), bytes.TrimLeft(line[3:], " \t")...)
			if bytes.HasPrefix(doc, []byte("#")) {
				doc = nil
			}
			continue
		}
		doc = append(doc, line...)
	}
	return append(out, doc)
}

// parseOne parses one document into its objects: none for an empty document,
// the items of a list.
func parseOne(doc []byte) ([]*unstructured.Unstructured, error) {
	text, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	if len(doc) == 0 || bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		return nil, nil // comments only
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil {
		return nil, explain(text, err)
	}
	if !obj.IsList() {
		return []*unstructured.Unstructured{obj}, nil
	}
	var out []*unstructured.Unstructured
	items, _ := obj.Object["items"].([]any)
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items[%d] is not an object", i)
		}
		o := &unstructured.Unstructured{Object: m}
		if o.GetKind() == "" || o.GetAPIVersion() == "" {
			return nil, fmt.Errorf("items[%d] has no apiVersion and kind", i)
		}
		out = append(out, o)
	}
	return out, nil
}

// explain returns the error for a document that is not an object.
func explain(text []byte, err error) error {
	var m map[string]any
	if json.Unmarshal(text, &m) != nil {
		return errors.New("the document is not an object: want apiVersion, kind and metadata")
	}
	for _, key := range []string{"apiVersion", "kind"} {
		if s, ok := m[key].(string); !ok || s == "" {
			return fmt.Errorf("error validating data: %s not set", key)
		}
	}
	return err
}
