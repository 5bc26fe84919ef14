package paths

import "k8s.io/kube-openapi/pkg/validation/spec"

func pathParameter(name, description string) spec.Parameter {
	return spec.Parameter{
		SimpleSchema:      spec.SimpleSchema{Type: "string"},
		ParamProps:        spec.ParamProps{Name: name, In: "path", Description: description, Required: true},
		CommonValidations: spec.CommonValidations{UniqueItems: true},
	}
}

func query(name, kind, description string) spec.Parameter {
	return spec.Parameter{
		SimpleSchema:      spec.SimpleSchema{Type: kind},
		ParamProps:        spec.ParamProps{Name: name, In: "query", Description: description},
		CommonValidations: spec.CommonValidations{UniqueItems: true},
	}
}

func bodyParameter(schema *spec.Schema) spec.Parameter {
	return spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Schema: schema, Required: true}}
}

// writeParameters returns the parameters of create, replace and patch.
func writeParameters() []spec.Parameter {
	return []spec.Parameter{
		query("dryRun", "string", "With the value All the request goes through all stages but nothing is stored."),
		query("fieldManager", "string", "The name of who or what makes the change; at most 128 printable characters."),
		query("fieldValidation", "string", "What to do with unknown and duplicate fields: Ignore, Warn (the default) or Strict."),
	}
}

// selectParameters returns the parameters that select objects of a list.
func selectParameters() []spec.Parameter {
	return []spec.Parameter{
		query("continue", "string", "The continue token of the previous part of the list."),
		query("fieldSelector", "string", "Only objects whose fields match."),
		query("labelSelector", "string", "Only objects whose labels match."),
		query("limit", "integer", "At most so many objects; the answer carries a continue token if there are more."),
		query("resourceVersion", "string", "How fresh the answer must be."),
		query("resourceVersionMatch", "string", "What resourceVersion means: NotOlderThan or Exact."),
		query("sendInitialEvents", "boolean", "A watch that begins with the present state, ended by a bookmark."),
		query("timeoutSeconds", "integer", "When to end the call."),
	}
}

func listParameters() []spec.Parameter {
	return append(selectParameters(),
		query("allowWatchBookmarks", "boolean", "A watch may send bookmarks."),
		query("watch", "boolean", "Stream changes instead of returning a list."))
}

func deleteParameters() []spec.Parameter {
	body := bodyParameter(meta("DeleteOptions"))
	body.Required = false
	return []spec.Parameter{
		body,
		query("dryRun", "string", "With the value All the request goes through all stages but nothing is stored."),
		query("gracePeriodSeconds", "integer", "How long the object has to end; 0 deletes at once."),
		query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
		query("propagationPolicy", "string", "What becomes of the dependents: Orphan, Background or Foreground."),
	}
}

// streamParameters returns the parameters of the connections to pods, nodes and
// services.
func streamParameters(subresource string) []spec.Parameter {
	container := query("container", "string", "The container; may be left out if the pod has one only.")
	streams := []spec.Parameter{
		container,
		query("stderr", "boolean", "Stream standard error."),
		query("stdin", "boolean", "Stream standard input."),
		query("stdout", "boolean", "Stream standard output."),
		query("tty", "boolean", "Allocate a terminal."),
	}
	switch subresource {
	case "exec":
		return append(streams, query("command", "string", "The command, an argument each."))
	case "attach":
		return streams
	case "portforward":
		return []spec.Parameter{query("ports", "integer", "The ports, for connections over WebSocket.")}
	case "log":
		return []spec.Parameter{
			container,
			query("follow", "boolean", "Stream what comes."),
			query("limitBytes", "integer", "Stop after so many bytes."),
			query("previous", "boolean", "The log of the container's previous life."),
			query("sinceSeconds", "integer", "Only what is at most so old."),
			query("stream", "string", "All, Stdout or Stderr."),
			query("tailLines", "integer", "Only so many lines from the end."),
			query("timestamps", "boolean", "Begin each line with its time."),
		}
	}
	return []spec.Parameter{query("path", "string", "The path on the other side.")}
}
