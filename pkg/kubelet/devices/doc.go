// Package devices gives containers the devices of device plugins (deviceplugin v1beta1).
//
// A plugin registers a resource, by the Registration service on the socket kubelet.sock in
// <root>/device-plugins (register.go) or by the plugin watcher, and from then on streams the
// list of its devices (plugin.go). The Manager reports their number as capacity of the node
// (resources.go), chooses devices for the containers of a pod and has the plugin prepare
// them (allocate.go), and tells how a container gets its devices (options.go). It records
// who has which device in a checkpoint (checkpoint.go), so that running pods keep theirs
// when the kubelet restarts.
package devices
