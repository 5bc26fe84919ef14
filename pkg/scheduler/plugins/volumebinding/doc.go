// Package volumebinding places pods where their volumes can be, and binds the claims that
// wait for their first pod.
//
// A pod needs all its claims. Those that are bound restrict it to the nodes of their
// volumes. Those of classes with binding mode WaitForFirstConsumer are bound after a node
// is chosen: the plugin reserves a volume that exists for the claim, or names the node in
// an annotation of the claim, so that the provisioner makes a volume there. The pod is
// bound when its claims are.
package volumebinding
