package expression

import (
	"github.com/google/cel-go/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// The names of the variables.
const (
	objectVar     = "object"
	oldObjectVar  = "oldObject"
	paramsVar     = "params"
	requestVar    = "request"
	namespaceVar  = "namespaceObject"
	authorizerVar = "authorizer"
	resourceVar   = "authorizer.requestResource"
	variablesVar  = "variables"
)

// Declared are the variables of an expression besides object, oldObject,
// request and namespaceObject, and whether it may construct patches.
type Declared struct {
	Params     bool
	Authorizer bool
	Patch      bool
}

// Types are the types of object (and oldObject) and params. A nil type is
// dynamic: any use of the variable compiles.
type Types struct{ Object, Params *apicel.DeclType }

// variables returns the options that declare the variables, and the types that
// they need.
func (d Declared) variables(t Types) ([]cel.EnvOption, []*apicel.DeclType) {
	request, namespace := requestType(), namespaceType()
	needed := []*apicel.DeclType{namespace, request}
	typeOf := func(known *apicel.DeclType) *cel.Type {
		if known == nil {
			return cel.DynType
		}
		needed = append(needed, known)
		return known.CelType()
	}
	object := typeOf(t.Object)
	options := []cel.EnvOption{
		cel.Variable(objectVar, object),
		cel.Variable(oldObjectVar, object),
		cel.Variable(namespaceVar, namespace.CelType()),
		cel.Variable(requestVar, request.CelType()),
	}
	if d.Params {
		options = append(options, cel.Variable(paramsVar, typeOf(t.Params)))
	}
	if d.Authorizer {
		options = append(options, cel.Variable(authorizerVar, library.AuthorizerType), cel.Variable(resourceVar, library.ResourceCheckType))
	}
	return options, needed
}

// object declares a type of the group kubernetes. Fields whose name ends in "?"
// are optional.
func object(name string, types map[string]*apicel.DeclType) *apicel.DeclType {
	fields := map[string]*apicel.DeclField{}
	for field, t := range types {
		required := field[len(field)-1] != '?'
		if !required {
			field = field[:len(field)-1]
		}
		fields[field] = apicel.NewDeclField(field, t, required, nil, nil)
	}
	return apicel.NewObjectType("kubernetes."+name, fields)
}

type types = map[string]*apicel.DeclType

func listOf(t *apicel.DeclType) *apicel.DeclType { return apicel.NewListType(t, -1) }

func mapTo(t *apicel.DeclType) *apicel.DeclType { return apicel.NewMapType(apicel.StringType, t, -1) }

// requestType is the type of an AdmissionRequest, without its uid and its
// objects.
func requestType() *apicel.DeclType {
	text := apicel.StringType
	kind := object("GroupVersionKind", types{"group": text, "version": text, "kind": text})
	resource := object("GroupVersionResource", types{"group": text, "version": text, "resource": text})
	user := object("UserInfo", types{"username?": text, "uid?": text, "groups?": listOf(text), "extra?": mapTo(listOf(text))})
	return object("AdmissionRequest", types{
		"kind": kind, "resource": resource, "subResource?": text,
		"requestKind": kind, "requestResource": resource, "requestSubResource?": text,
		"name": text, "namespace?": text, "operation": text, "userInfo": user,
		"dryRun?": apicel.BoolType, "options?": apicel.DynType,
	})
}

// namespaceType is the type of a Namespace. As upstream, it has no managed
// fields and no owner references.
func namespaceType() *apicel.DeclType {
	text, moment := apicel.StringType, apicel.TimestampType
	condition := object("NamespaceCondition", types{"status": text, "type": text, "lastTransitionTime": moment, "message": text, "reason": text})
	return object("Namespace", types{
		"metadata": object("NamespaceMetadata", types{
			"name": text, "generateName": text, "namespace": text, "labels": mapTo(text), "annotations": mapTo(text), "UID": text,
			"creationTimestamp": moment, "deletionGracePeriodSeconds": apicel.IntType, "deletionTimestamp": moment,
			"generation": apicel.IntType, "resourceVersion": text, "finalizers": listOf(text),
		}),
		"spec":   object("NamespaceSpec", types{"finalizers": listOf(text)}),
		"status": object("NamespaceStatus", types{"conditions": listOf(condition), "phase": text}),
	})
}

// declared returns the declaration of a CEL type, for the variables of a policy.
func declared(t *cel.Type) *apicel.DeclType {
	for have, is := range map[*cel.Type]*apicel.DeclType{
		cel.AnyType: apicel.AnyType, cel.BoolType: apicel.BoolType, cel.BytesType: apicel.BytesType, cel.DoubleType: apicel.DoubleType,
		cel.DurationType: apicel.DurationType, cel.IntType: apicel.IntType, cel.NullType: apicel.NullType, cel.StringType: apicel.StringType,
		cel.TimestampType: apicel.TimestampType, cel.UintType: apicel.UintType,
	} {
		if t == have {
			return is
		}
	}
	if t == nil {
		return apicel.DynType
	}
	switch of := t.Parameters(); {
	case t.Kind() == cel.ListKind && len(of) == 1:
		return listOf(declared(of[0]))
	case t.Kind() == cel.MapKind && len(of) == 2:
		return apicel.NewMapType(declared(of[0]), declared(of[1]), -1)
	}
	return apicel.DynType
}
