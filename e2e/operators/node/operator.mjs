// An ordinary operator, as anybody would write it with the informers of @kubernetes/client-node: a ConfigMap and a Secret for each
// Website. It elects no leader, as that library has no election, and knows nothing of other replicas at work beside it.
import * as k8s from '@kubernetes/client-node';

const { COLLECTOR, HOSTNAME, INSTANCE = HOSTNAME, CONCURRENCY = '4' } = process.env;
const CONFIG_MAPS = '/api/v1/configmaps';
const WEBSITES = { group: 'web.example.com', version: 'v1', plural: 'websites' };
// The pause before another try.
const BACKOFF_MILLIS = 1000;

const kc = new k8s.KubeConfig();
kc.loadFromDefault();
const custom = kc.makeApiClient(k8s.CustomObjectsApi);
const core = kc.makeApiClient(k8s.CoreV1Api);

async function reconcile(website) {
  const { name, namespace } = website.metadata;
  const { content = '', workMillis = 0 } = website.spec;
  await new Promise((resolve) => setTimeout(resolve, workMillis));
  await put('ConfigMap', child(website, { 'index.html': content }));
  await put('Secret', child(website, { site: Buffer.from(name).toString('base64') }));
  const status = { observedGeneration: website.metadata.generation, reconciledBy: INSTANCE };
  const { observedGeneration, reconciledBy } = website.status ?? {};
  if (observedGeneration === status.observedGeneration && reconciledBy === INSTANCE) return;
  const body = [{ op: 'add', path: '/status', value: status }];
  await custom.patchNamespacedCustomObjectStatus({ ...WEBSITES, namespace, name, body });
}

function child({ apiVersion, kind, metadata: { name, namespace, uid } }, data) {
  const owner = { apiVersion, kind, name, uid, controller: true, blockOwnerDeletion: true };
  return { metadata: { name, namespace, ownerReferences: [owner] }, data };
}

// Creates a child, or changes what it has.
async function put(kind, body) {
  const at = { name: body.metadata.name, namespace: body.metadata.namespace };
  const found = await core[`readNamespaced${kind}`](at).catch((error) => {
    if (error.code !== 404) throw error;
  });
  if (!found) await core[`createNamespaced${kind}`]({ ...at, body });
  else if (Object.entries(body.data).some(([key, value]) => found.data?.[key] !== value)) {
    await core[`replaceNamespaced${kind}`]({ ...at, body: { ...found, data: body.data } });
  }
}

// Tells a collector when work on an object starts and ends.
async function report(phase, { uid, generation }, more = {}) {
  if (!COLLECTOR) return;
  const answer = await fetch(COLLECTOR, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ phase, uid, generation, instance: INSTANCE, ...more }),
    signal: AbortSignal.timeout(10_000),
  });
  if (!answer.ok) throw new Error(`report to the collector: ${answer.status}`);
}

function outcome(error) {
  if (!error) return 'done';
  const isAlreadyExists = error.code === 409 && String(error.body).includes('"AlreadyExists"');
  return isAlreadyExists ? 'alreadyExists' : 'failed';
}

// What waits for work, and what is in work: no object twice at once.
const waiting = new Set();
const working = new Set();
let ends = false;

function enqueue(key) {
  waiting.add(key);
  next();
}

function next() {
  for (const key of waiting) {
    if (ends || working.size >= Number(CONCURRENCY)) break;
    if (working.has(key)) continue;
    waiting.delete(key);
    working.add(key);
    work(key)
      .catch((error) => {
        console.error('failed', key, error.code ?? '', String(error.body ?? error).slice(0, 300));
        setTimeout(enqueue, BACKOFF_MILLIS, key);
      })
      .finally(() => {
        working.delete(key);
        if (ends && working.size === 0) process.exit(0);
        next();
      });
  }
}

async function work(key) {
  const [namespace, name] = key.split('/');
  const website = websites.get(name, namespace);
  if (!website || website.metadata.deletionTimestamp) return;
  await report('start', website.metadata);
  let fault;
  try {
    await reconcile(website);
  } catch (error) {
    fault = error;
  }
  await report('end', website.metadata, { outcome: outcome(fault) });
  if (fault) throw fault;
}

function informer(path, list, see) {
  const made = k8s.makeInformer(kc, path, list);
  made.on('add', see);
  made.on('update', see);
  made.on('error', (error) => {
    console.error('informer', path, String(error));
    start(made);
  });
  return made;
}

function start(informer) {
  informer.start().catch((error) => {
    console.error('informer', String(error));
    setTimeout(start, BACKOFF_MILLIS, informer);
  });
}

const generations = new Map();
const websites = informer(
  `/apis/${WEBSITES.group}/${WEBSITES.version}/${WEBSITES.plural}`,
  () => custom.listCustomObjectForAllNamespaces(WEBSITES),
  ({ metadata: { namespace, name, uid, generation } }) => {
    // Its own changes of the status are no work.
    if (generations.get(uid) === generation) return;
    generations.set(uid, generation);
    enqueue(`${namespace}/${name}`);
  },
);
websites.on('delete', ({ metadata: { uid } }) => generations.delete(uid));
const configMaps = informer(CONFIG_MAPS, () => core.listConfigMapForAllNamespaces(), () => {});
configMaps.on('delete', ({ metadata: { namespace, ownerReferences = [] } }) => {
  const owner = ownerReferences.find(({ controller, kind }) => controller && kind === 'Website');
  if (owner) enqueue(`${namespace}/${owner.name}`);
});

for (const signal of ['SIGTERM', 'SIGINT']) {
  process.on(signal, () => {
    ends = true;
    if (working.size === 0) process.exit(0);
  });
}
[websites, configMaps].forEach(start);
