// Package staticpods runs the pods of manifests on the node, without the API: those of a
// directory or a file, and those that a URL has. For each of them it keeps a mirror in the
// API, a pod that shows the static pod's status and stands for it in requests for logs or
// exec. Mirrors are never run, and deleting one ends nothing.
//
//	manifest.go  a manifest becomes a pod, or an error
//	files.go     the manifests of a directory or a file
//	web.go       the manifests of a URL
//	sources.go   which pods begin and end when manifests change
//	mirrors.go   the mirrors in the API follow the static pods
//	api.go       the status of a static pod is that of its mirror
package staticpods
