// Command openapi writes the published documents in api/openapi, the schema and
// the paths of every served kind, and those of metrics-server. Run it with `go run ./hack/openapi` after a
// change of the kinds or of the version of k8s.io/api. Its output is
// reproducible.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/apiserver/openapi/paths"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

const (
	generator = "hack/openapi/definitions" // a module of its own
	target    = "api/openapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run() error {
	s := scheme.New()
	types, err := loadTypes(s)
	if err != nil {
		return err
	}
	v3 := filepath.Join(target, "v3")
	if err := os.RemoveAll(v3); err != nil {
		return err
	}
	all := paths.Swagger()
	all.Definitions = spec.Definitions{}
	docs := paths.Documents(s, kinds(s))
	paths.Discovery(docs)
	for path, doc := range docs {
		used := types.reachable(doc)
		maps.Copy(all.Paths.Paths, doc.Paths.Paths)
		for name := range used {
			all.Definitions[name] = types.v2(name)
		}
		if err := write(filepath.Join(v3, path+".json"), toV3(doc, types, used)); err != nil {
			return err
		}
	}
	if err := writeMetrics(types); err != nil {
		return err
	}
	return write(filepath.Join(target, "v2.json"), all)
}

// kinds returns the kinds of a server with every subresource.
func kinds(s *scheme.Scheme) []*registry.Kind {
	stream := func(registry.Backend, string, string, string) http.Handler { return http.NotFoundHandler() }
	return registry.Kinds(s, registry.Config{Streams: registry.Streams{
		PodLog: stream, PodExec: stream, PodAttach: stream, PodPortForward: stream, PodProxy: stream,
		NodeProxy: stream, ServiceProxy: stream,
	}})
}

func toV3(doc *spec.Swagger, t *types, used map[string]bool) *spec3.OpenAPI {
	out := openapiconv.ConvertV2ToV3(doc)
	out.Components.Schemas = map[string]*spec.Schema{}
	for name := range used {
		out.Components.Schemas[name] = t.v3(name)
	}
	return out
}

// runGenerator returns the definitions of the Go types as JSON.
func runGenerator() ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(generator, "packages.go"))
	if err != nil {
		return nil, err
	}
	args := []string{"tool", "openapi-gen",
		"--output-dir", "generated", "--output-pkg", "podium/hack/openapi/definitions/generated",
		"--output-file", "generated.go", "--report-filename", os.DevNull}
	for _, m := range regexp.MustCompile(`_ "(.*)"`).FindAllStringSubmatch(string(source), -1) {
		args = append(args, m[1])
	}
	defer os.Remove(filepath.Join(generator, "generated", "generated.go"))
	if _, err := goCommand(args...); err != nil {
		return nil, err
	}
	return goCommand("run", ".")
}

func goCommand(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = generator
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s %s: %w", args[0], args[1], err)
	}
	return out, nil
}

// write writes doc as JSON with a line for each path and each schema, so that a
// change of one is a change of one line.
func write(path string, doc any) error {
	data, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	var out bytes.Buffer
	if err := writeLines(&out, tree, nil); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	out.WriteByte('\n')
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// opened reports whether the object at a path is written over several lines.
func opened(at []string) bool {
	switch strings.Join(at, "/") {
	case "", "paths", "definitions", "components", "components/schemas":
		return true
	}
	return false
}

// writeLines writes v, which is at the path at, with sorted keys.
func writeLines(out *bytes.Buffer, v any, at []string) error {
	object, ok := v.(map[string]any)
	if !ok || !opened(at) {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(v); err != nil {
			return err
		}
		out.Truncate(out.Len() - 1) // the encoder's newline
		return nil
	}
	out.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(out, "\n%q:", key)
		if err := writeLines(out, object[key], append(slices.Clone(at), key)); err != nil {
			return err
		}
	}
	out.WriteString("\n}")
	return nil
}
