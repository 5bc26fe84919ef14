// Command definitions prints, as JSON, the schema of each API type that
// openapi-gen has found in k8s.io/api, by model name. `go run ./hack/openapi`
// runs both. It is a module of its own: the generated code is large and needs a
// generator that the product does not need.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/hack/openapi/definitions/generated"
)

func main() {
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }
	out := map[string]common.OpenAPIDefinition{}
	for name, d := range generated.GetOpenAPIDefinitions(ref) {
		out[name] = common.OpenAPIDefinition{Schema: d.Schema}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
