// Conversations in the browser's own storage (IndexedDB), which is on this device and has room.
// Writes are gathered: a conversation that changes with every token is stored twice a second. Other
// tabs of the page hear what was written, so that two of them do not undo each other's work.
import { readConversation } from "./backup";
import { Conversation } from "./conversation";

const DATABASE = "cellm";
const TABLE = "conversations";
const WRITE_AFTER_MS = 500;

// What another tab did: conversations that it wrote, or removed.
export interface Change {
  readonly saved: string[];
  readonly removed: string[];
}

export class Store {
  private readonly pending = new Map<string, Conversation>();
  private readonly channel = new BroadcastChannel(DATABASE);
  private timer = 0;

  private constructor(
    private readonly database: IDBDatabase | null,
    private readonly failed: (message: string) => void,
  ) {}

  // Always gives a store: where the browser has none (a private window, a full disk) `failed` is
  // told once, and the page works until it is closed.
  static async open(failed: (message: string) => void): Promise<Store> {
    try {
      return new Store(await openDatabase(), failed);
    } catch {
      failed("This browser gives the page no storage: conversations are lost when it is closed.");
      return new Store(null, () => undefined);
    }
  }

  onChange(heard: (change: Change) => void): void {
    this.channel.onmessage = (event: MessageEvent<Change>) => heard(event.data);
  }

  async read(id: string): Promise<Conversation | null> {
    if (this.database === null) return null;
    const request = this.database.transaction(TABLE).objectStore(TABLE).get(id);
    return readConversation(await settled(request as IDBRequest<unknown>));
  }

  async readAll(): Promise<Conversation[]> {
    if (this.database === null) return [];
    const request = this.database.transaction(TABLE).objectStore(TABLE).getAll();
    const values = (await settled(request)) as unknown[];
    const conversations: Conversation[] = [];
    for (const value of values) {
      const conversation = readConversation(value);
      if (conversation !== null) conversations.push(conversation);
    }
    return conversations;
  }

  save(conversation: Conversation): void {
    this.pending.set(conversation.id, conversation);
    if (this.timer === 0) this.timer = window.setTimeout(() => void this.flush(), WRITE_AFTER_MS);
  }

  // Writes what is pending. Also called when the page is hidden or closed.
  async flush(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.pending.size === 0 || this.database === null) return;
    const conversations = Array.from(this.pending.values());
    this.pending.clear();
    try {
      const transaction = this.database.transaction(TABLE, "readwrite");
      for (const each of conversations) transaction.objectStore(TABLE).put(each);
      transaction.commit(); // now: the page may be about to go
      await completed(transaction);
      this.tell({ saved: conversations.map((each) => each.id), removed: [] });
    } catch {
      this.failed("The browser did not store the conversation. Export it to keep it.");
    }
  }

  async remove(id: string): Promise<void> {
    this.pending.delete(id);
    if (this.database === null) return;
    const transaction = this.database.transaction(TABLE, "readwrite");
    transaction.objectStore(TABLE).delete(id);
    await completed(transaction);
    this.tell({ saved: [], removed: [id] });
  }

  private tell(change: Change): void {
    this.channel.postMessage(change);
  }
}

function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(TABLE, { keyPath: "id" });
  };
  return settled(request);
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function completed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
    transaction.onerror = () => reject(transaction.error);
  });
}
