package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ringside.example/e2e/operator/contract"
)

// serve answers reviews from now on, and returns the certificate that it shows.
func (s *sharder) serve(listen string) ([]byte, error) {
	certificate, bundle, err := selfSigned(listen)
	if err != nil {
		return nil, err
	}
	listener, err := tls.Listen("tcp", listen, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	// It ends with the process.
	go http.Serve(listener, http.HandlerFunc(s.review))
	return bundle, nil
}

func selfSigned(listen string) (tls.Certificate, []byte, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(host)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, bundle, nil
}

// review places an object that has no shard label, whatever the write is.
func (s *sharder) review(writer http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(writer, "no review", http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if patch := s.place(review.Request); patch != nil {
		json := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &json
		response.Result = &metav1.Status{Message: "assigning object", Code: http.StatusOK}
	}
	review.Request, review.Response = nil, response
	writer.Header().Set("Content-Type", "application/json")
	// An API server that has gone away is not told anything.
	_ = json.NewEncoder(writer).Encode(review)
}

func (s *sharder) place(request *admissionv1.AdmissionRequest) []byte {
	var object metav1.PartialObjectMetadata
	known := s.known.Load()
	if known == nil || json.Unmarshal(request.Object.Raw, &object) != nil {
		return nil
	}
	label := contract.OfClusterRing(s.ring).Shard
	if _, assigned := object.Labels[label]; assigned {
		return nil
	}
	object.Namespace = request.Namespace
	controlled := known.ring.resources()[groupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}]
	key := key(request.Kind.Kind, request.Kind.Group, &object, controlled)
	shard := known.placement.owner(key)
	if key == "" || shard == "" {
		return nil
	}
	var operations []map[string]any
	if object.Labels == nil {
		operations = append(operations, map[string]any{"op": "add", "path": "/metadata/labels", "value": map[string]any{}})
	}
	path := "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1")
	operations = append(operations, map[string]any{"op": "add", "path": path, "value": shard})
	patch, _ := json.Marshal(operations)
	return patch
}
