// Package controllers is kube-controller-manager: the controllers that reconcile
// the state of the cluster. controllers.go lists them; each has a folder of its
// own and is made of the parts in package controller.
package controllers
