// Package paths generates the OpenAPI paths and operations of kinds.
package paths

import (
	"fmt"
	"maps"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

const (
	jsonType  = "application/json"
	yamlType  = "application/yaml"
	protoType = "application/vnd.kubernetes.protobuf"
)

// Documents returns the OpenAPI v2 document of each group version and each group of
// kinds, by path ("api/v1", "apis/apps"). The documents refer to definitions by
// model name and contain none. s must have the types of the bodies of subresources;
// Documents panics if one is missing.
func Documents(s *scheme.Scheme, kinds []*registry.Kind) map[string]*spec.Swagger {
	docs := map[string]*spec.Swagger{}
	for _, k := range kinds {
		for _, v := range k.Served() {
			in := *k
			in.Kind, in.Subresources = v.Kind, v.Rules.Subresources
			resource{&in, k.GroupVersionKind, s}.document(docs)
		}
	}
	return docs
}

// Discovery adds the documents of the paths that exist independently of any kind.
func Discovery(docs map[string]*spec.Swagger) {
	for _, d := range []struct{ name, path, tag, id, text, kind string }{
		{"api", "/api/", "core", "getCoreAPIVersions", "get available API versions", "APIVersions"},
		{"apis", "/apis/", "apis", "getAPIVersions", "get available API versions", "APIGroupList"},
		{"version", "/version/", "version", "getCodeVersion", "get the version information for this server", ""},
	} {
		docs[d.name] = Swagger()
		docs[d.name].Paths.Paths[d.path] = discovery(d.tag, d.id, d.text, d.kind)
	}
	docs["version"].Paths.Paths["/version/"].Get.Responses.StatusCodeResponses[http.StatusOK] = respond("OK", ref("io.k8s.apimachinery.pkg.version.Info"))
}

// document adds the paths of a resource in one version.
func (r resource) document(docs map[string]*spec.Swagger) {
	gv := r.GroupVersion()
	path := groupPath(gv)
	doc := docs[path]
	if doc == nil {
		doc = Swagger()
		docs[path] = doc
		doc.Paths.Paths["/"+path+"/"] = discovery(tag(gv), "get"+camel(gv)+"APIResources", "get available resources", "APIResourceList")
	}
	if group := "apis/" + gv.Group; gv.Group != "" && docs[group] == nil {
		docs[group] = Swagger()
		docs[group].Paths.Paths["/"+group+"/"] = discovery(strings.TrimSuffix(tag(gv), "_"+gv.Version), "get"+camel(schema.GroupVersion{Group: gv.Group})+"APIGroup", "get information of a group", "APIGroup")
	}
	maps.Copy(doc.Paths.Paths, r.paths())
}

func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// tag returns the name of a group version in tags.
func tag(gv schema.GroupVersion) string {
	group, _, _ := strings.Cut(gv.Group, ".")
	if group == "" {
		group = "core"
	}
	return group + "_" + gv.Version
}

func camel(gv schema.GroupVersion) string {
	group, version, _ := strings.Cut(tag(gv), "_")
	return title(group) + title(version)
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func ref(name string) *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(V2Prefix + name)}}
}

func meta(kind string) *spec.Schema { return ref("io.k8s.apimachinery.pkg.apis.meta.v1." + kind) }

func respond(text string, body *spec.Schema) spec.Response {
	return spec.Response{ResponseProps: spec.ResponseProps{Description: text, Schema: body}}
}

func responses(codes map[int]*spec.Schema) *spec.Responses {
	out := &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
		http.StatusUnauthorized: respond(http.StatusText(http.StatusUnauthorized), nil),
	}}}
	for code, body := range codes {
		out.StatusCodeResponses[code] = respond(http.StatusText(code), body)
	}
	return out
}

func discovery(tag, id, description, kind string) spec.PathItem {
	op := &spec.Operation{OperationProps: spec.OperationProps{
		ID: id, Description: description, Tags: []string{tag},
		Schemes: []string{"https"}, Consumes: []string{jsonType}, Produces: []string{jsonType},
		Responses: responses(nil),
	}}
	if kind != "" {
		op.Responses = responses(map[int]*spec.Schema{http.StatusOK: meta(kind)})
	}
	return spec.PathItem{PathItemProps: spec.PathItemProps{Get: op}}
}

// resource generates the paths of one kind in one version.
type resource struct {
	*registry.Kind
	storage schema.GroupVersionKind
	scheme  *scheme.Scheme
}

func (r resource) paths() map[string]spec.PathItem {
	base := "/" + groupPath(r.GroupVersion())
	all := base + "/" + r.Resource
	if r.Namespaced {
		base += "/namespaces/{namespace}"
	}
	list := base + "/" + r.Resource
	if r.Computed {
		return map[string]spec.PathItem{
			list:             r.item(false, spec.PathItemProps{Get: r.list("")}),
			list + "/{name}": r.item(true, spec.PathItemProps{Get: r.read(nil)}),
		}
	}
	if !r.Stored() {
		return map[string]spec.PathItem{list: r.item(false, spec.PathItemProps{Post: r.create()})}
	}
	one := list + "/{name}"
	out := map[string]spec.PathItem{
		list: r.item(false, spec.PathItemProps{Get: r.list(""), Post: r.create(), Delete: r.deleteCollection()}),
		one:  r.item(true, spec.PathItemProps{Get: r.read(nil), Put: r.replace(nil), Patch: r.patch(nil), Delete: r.delete()}),
	}
	if r.Namespaced {
		item := r.item(false, spec.PathItemProps{Get: r.list("ForAllNamespaces")})
		item.Parameters = withoutNamespace(item.Parameters)
		out[all] = item
	}
	for _, sub := range r.Subresources {
		path := one + "/" + sub.Name
		switch {
		case sub.Connect != nil:
			out[path] = r.item(true, r.connect(sub, ""))
			if strings.HasSuffix(sub.Name, "proxy") {
				deep := r.item(true, r.connect(sub, "WithPath"))
				deep.Parameters = append(deep.Parameters, pathParameter("path", "path to the resource"))
				out[path+"/{path}"] = deep
			}
		case sub.Act != nil:
			out[path] = r.item(true, spec.PathItemProps{Post: r.act(sub)})
		case sub.Name == "finalize":
			out[path] = r.item(true, spec.PathItemProps{Put: r.replace(sub)})
		default:
			out[path] = r.item(true, spec.PathItemProps{Get: r.read(sub), Put: r.replace(sub), Patch: r.patch(sub)})
		}
	}
	return out
}

func (r resource) item(named bool, props spec.PathItemProps) spec.PathItem {
	if named {
		props.Parameters = append(props.Parameters, pathParameter("name", "name of the "+r.GroupVersionKind.Kind))
	}
	if r.Namespaced {
		props.Parameters = append(props.Parameters, pathParameter("namespace", "object name and auth scope, such as for teams and projects"))
	}
	props.Parameters = append(props.Parameters, query("pretty", "string", "If 'true', then the output is pretty printed."))
	return spec.PathItem{PathItemProps: props}
}

func withoutNamespace(parameters []spec.Parameter) []spec.Parameter {
	var out []spec.Parameter
	for _, p := range parameters {
		if p.Name != "namespace" {
			out = append(out, p)
		}
	}
	return out
}

// operation returns an operation with the fields that all operations have. sub is
// nil for the kind itself.
func (r resource) operation(verb, action string, sub *registry.Subresource, suffix, description string) *spec.Operation {
	id := verb + camel(r.GroupVersion())
	if r.Namespaced && suffix != "ForAllNamespaces" {
		id += "Namespaced"
	}
	id += r.GroupVersionKind.Kind
	gvk := r.GroupVersionKind
	if sub != nil {
		id += title(sub.Name)
		gvk = sub.GVK
		if gvk == r.storage {
			gvk = r.GroupVersionKind
		}
		if sub.Connect != nil && sub.Name == "log" {
			gvk = r.GroupVersionKind
		}
	}
	return &spec.Operation{
		VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{
			"x-kubernetes-action": action,
			GVKExtension:          GVKValue(gvk),
		}},
		OperationProps: spec.OperationProps{
			ID: id + suffix, Description: description, Tags: []string{tag(r.GroupVersion())},
			Schemes: []string{"https"}, Consumes: []string{"*/*"}, Produces: []string{jsonType, yamlType, protoType},
		},
	}
}

// body returns the schema of the request bodies of a kind (sub nil) or of a
// subresource.
func (r resource) body(sub *registry.Subresource) *spec.Schema {
	if sub == nil || sub.GVK == r.storage || sub.GVK == r.GroupVersionKind {
		return ref(KindModel(r.Kind.Kind))
	}
	obj, err := r.scheme.New(sub.GVK)
	if err != nil {
		panic(fmt.Sprintf("openapi: %s/%s: %v", r.Resource, sub.Name, err))
	}
	return ref(ModelName(obj))
}

// of returns the target of an operation for its description.
func (r resource) of(sub *registry.Subresource) string {
	if sub == nil {
		return "the specified " + r.GroupVersionKind.Kind
	}
	return sub.Name + " of the specified " + r.GroupVersionKind.Kind
}

func (r resource) list(suffix string) *spec.Operation {
	op := r.operation("list", "list", nil, suffix, "list or watch objects of kind "+r.GroupVersionKind.Kind)
	op.Produces = append(op.Produces, jsonType+";stream=watch", protoType+";stream=watch")
	op.Parameters = listParameters()
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: ref(ListModel(r.Kind.Kind))})
	return op
}

func (r resource) read(sub *registry.Subresource) *spec.Operation {
	op := r.operation("read", "get", sub, "", "read "+r.of(sub))
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: r.body(sub)})
	return op
}

func (r resource) create() *spec.Operation {
	op := r.operation("create", "post", nil, "", "create a "+r.GroupVersionKind.Kind)
	body := r.body(nil)
	op.Parameters = append([]spec.Parameter{bodyParameter(body)}, writeParameters()...)
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: body, http.StatusCreated: body, http.StatusAccepted: body})
	return op
}

func (r resource) replace(sub *registry.Subresource) *spec.Operation {
	op := r.operation("replace", "put", sub, "", "replace "+r.of(sub))
	body := r.body(sub)
	op.Parameters = append([]spec.Parameter{bodyParameter(body)}, writeParameters()...)
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: body, http.StatusCreated: body})
	return op
}

func (r resource) patch(sub *registry.Subresource) *spec.Operation {
	op := r.operation("patch", "patch", sub, "", "partially update "+r.of(sub))
	op.Consumes = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
	body := r.body(sub)
	op.Parameters = append([]spec.Parameter{bodyParameter(meta("Patch"))}, writeParameters()...)
	op.Parameters = append(op.Parameters, query("force", "boolean", "Force is going to \"force\" Apply requests. It means user will re-acquire conflicting fields owned by other people. Force flag must be unset for non-apply patch requests."))
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: body, http.StatusCreated: body})
	return op
}

func (r resource) delete() *spec.Operation {
	op := r.operation("delete", "delete", nil, "", "delete a "+r.GroupVersionKind.Kind)
	op.Parameters = deleteParameters()
	body := meta("Status")
	if r.ReturnDeleted {
		body = r.body(nil)
	}
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: body, http.StatusAccepted: body})
	return op
}

func (r resource) deleteCollection() *spec.Operation {
	if r.NoDeleteCollection {
		return nil
	}
	op := r.operation("deleteCollection", "deletecollection", nil, "", "delete collection of "+r.GroupVersionKind.Kind)
	op.ID = strings.Replace(op.ID, "deleteCollection"+camel(r.GroupVersion()), "delete"+camel(r.GroupVersion())+"Collection", 1)
	op.Parameters = append(deleteParameters(), selectParameters()...)
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: meta("Status")})
	return op
}

func (r resource) act(sub *registry.Subresource) *spec.Operation {
	op := r.operation("create", "post", sub, "", "create "+r.of(sub))
	body := r.body(sub)
	op.Parameters = append([]spec.Parameter{bodyParameter(body)}, writeParameters()...)
	op.Responses = responses(map[int]*spec.Schema{http.StatusOK: body, http.StatusCreated: body, http.StatusAccepted: body})
	return op
}

func (r resource) connect(sub *registry.Subresource, suffix string) spec.PathItemProps {
	var props spec.PathItemProps
	for _, method := range sub.Methods {
		verb := "connect" + strings.ToUpper(method[:1]) + strings.ToLower(method[1:])
		action := "connect"
		if sub.Name == "log" {
			verb, action = "read", "get"
		}
		op := r.operation(verb, action, sub, suffix, "connect "+method+" requests to "+r.of(sub))
		op.ID = strings.Replace(op.ID, verb+camel(r.GroupVersion()), strings.Replace(verb, "connect", "connect"+camel(r.GroupVersion()), 1), 1)
		if sub.Name == "log" {
			op.ID = "read" + camel(r.GroupVersion()) + "NamespacedPodLog"
			op.Produces = []string{"text/plain", jsonType, yamlType, protoType}
		} else {
			op.Produces = []string{"*/*"}
		}
		op.Parameters = streamParameters(sub.Name)
		op.Responses = responses(map[int]*spec.Schema{http.StatusOK: spec.StringProperty()})
		switch method {
		case http.MethodGet:
			props.Get = op
		case http.MethodPost:
			props.Post = op
		case http.MethodPut:
			props.Put = op
		case http.MethodPatch:
			props.Patch = op
		case http.MethodDelete:
			props.Delete = op
		case http.MethodHead:
			props.Head = op
		case http.MethodOptions:
			props.Options = op
		}
	}
	return props
}
