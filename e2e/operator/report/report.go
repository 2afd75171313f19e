// Package report tells a collector when a reconcile starts and ends. It is all that is special about this operator.
package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Reports don't end with the reconcile's own context: the end must be told although that has ended, and a start that was
// given up might have been heard, with no end to follow. A collector that hangs must not hold up the operator for ever.
const timeout = 10 * time.Second

// Reporter posts to a collector. Without a URL it is silent.
type Reporter struct {
	// URL is where the collector takes reports.
	URL string
	// Instance is unique to this life of the process.
	Instance string
}

type message struct {
	Phase      string    `json:"phase"`
	UID        types.UID `json:"uid"`
	Generation int64     `json:"generation"`
	Instance   string    `json:"instance"`
	Outcome    string    `json:"outcome,omitempty"`
}

// Start reports that work on the object begins. When it returns without an error the collector knows.
func (r Reporter) Start(uid types.UID, generation int64) error {
	return r.post(message{Phase: "start", UID: uid, Generation: generation})
}

// End reports that work on the object has ended with err, after its last write.
func (r Reporter) End(uid types.UID, generation int64, err error) error {
	return r.post(message{Phase: "end", UID: uid, Generation: generation, Outcome: outcome(err)})
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case apierrors.IsAlreadyExists(err):
		return "alreadyExists"
	default:
		return "failed"
	}
}

func (r Reporter) post(m message) error {
	if r.URL == "" {
		return nil
	}
	m.Instance = r.Instance
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("report to the collector: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("report to the collector: %s", response.Status)
	}
	return nil
}
