package main

import (
	"errors"
	"maps"
	"net/http"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/apiserver/openapi/paths"
)

// metricsTarget is the folder of metrics-server's documents: it serves them itself.
const metricsTarget = "pkg/metricsserver/api/openapi"

// metricsKind is a kind that metrics-server serves.
type metricsKind struct {
	name, resource string
	namespaced     bool
	object, list   runtime.Object
}

// writeMetrics writes the documents of metrics.k8s.io/v1beta1.
func writeMetrics(t *types) error {
	own := &types{schemas: t.schemas, gvks: maps.Clone(t.gvks)}
	doc := paths.Swagger()
	doc.Definitions = spec.Definitions{}
	for _, k := range []metricsKind{
		{"NodeMetrics", "nodes", false, &metricsv1beta1.NodeMetrics{}, &metricsv1beta1.NodeMetricsList{}},
		{"PodMetrics", "pods", true, &metricsv1beta1.PodMetrics{}, &metricsv1beta1.PodMetricsList{}},
	} {
		gv := metricsv1beta1.SchemeGroupVersion
		own.gvks[paths.ModelName(k.object)] = []schema.GroupVersionKind{gv.WithKind(k.name)}
		own.gvks[paths.ModelName(k.list)] = []schema.GroupVersionKind{gv.WithKind(k.name + "List")}
		maps.Copy(doc.Paths.Paths, k.paths("/apis/"+gv.String()+"/"))
	}
	used := own.reachable(doc)
	for name := range used {
		doc.Definitions[name] = own.v2(name)
	}
	v3 := toV3(doc, own, used)
	return errors.Join(write(filepath.Join(metricsTarget, "v2.json"), doc), write(filepath.Join(metricsTarget, "v3.json"), v3))
}

// paths returns the operations of the kind.
func (k metricsKind) paths(root string) map[string]spec.PathItem {
	if !k.namespaced {
		return map[string]spec.PathItem{
			root + k.resource:             k.item("list", "list"+k.name, k.list),
			root + k.resource + "/{name}": k.item("get", "read"+k.name, k.object, "name"),
		}
	}
	in := root + "namespaces/{namespace}/" + k.resource
	return map[string]spec.PathItem{
		root + k.resource: k.item("list", "list"+k.name+"ForAllNamespaces", k.list),
		in:                k.item("list", "listNamespaced"+k.name, k.list, "namespace"),
		in + "/{name}":    k.item("get", "readNamespaced"+k.name, k.object, "name", "namespace"),
	}
}

// item returns the one operation of a path, which returns body.
func (k metricsKind) item(action, id string, body runtime.Object, parameters ...string) spec.PathItem {
	media := []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	op := &spec.Operation{OperationProps: spec.OperationProps{
		ID: "metricsV1beta1" + id, Description: action + " " + k.name, Tags: []string{"metrics_v1beta1"}, Schemes: []string{"https"}, Produces: media,
		Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			http.StatusOK: {ResponseProps: spec.ResponseProps{Description: "OK", Schema: &spec.Schema{SchemaProps: spec.SchemaProps{
				Ref: spec.MustCreateRef(paths.V2Prefix + paths.ModelName(body)),
			}}}},
			http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
		}}},
	}}
	op.AddExtension("x-kubernetes-action", action)
	op.AddExtension(paths.GVKExtension, paths.GVKValue(metricsv1beta1.SchemeGroupVersion.WithKind(k.name)))
	if action == "list" {
		op.Parameters = []spec.Parameter{
			parameter("query", "labelSelector", "A selector of labels.", false),
			parameter("query", "fieldSelector", "A selector of fields: names and namespaces.", false),
		}
	}
	item := spec.PathItem{PathItemProps: spec.PathItemProps{Get: op}}
	for _, name := range parameters {
		item.Parameters = append(item.Parameters, parameter("path", name, "The "+name+" of the object.", true))
	}
	return item
}

func parameter(in, name, description string, required bool) spec.Parameter {
	return spec.Parameter{
		SimpleSchema: spec.SimpleSchema{Type: "string"},
		ParamProps:   spec.ParamProps{In: in, Name: name, Description: description, Required: required},
	}
}
