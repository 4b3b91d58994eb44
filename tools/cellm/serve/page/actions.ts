// What views ask of the page. app.ts carries it out; views only show.
import { Model } from "./api";
import { Conversation, Turn } from "./conversation";
import { Progress } from "./generation";

export interface Actions {
  models(): Model[];
  progressOf(conversation: Conversation): Progress | null;

  newConversation(): void;
  openConversation(id: string): void;
  closeColumn(conversation: Conversation): void;
  deleteConversation(conversation: Conversation): Promise<void>;
  forkConversation(conversation: Conversation): Promise<void>;
  // Something of it changed that is stored and shown in the list.
  changed(conversation: Conversation): void;

  // False when it could not be sent (a reply is under way, too many streams): the text stays.
  send(conversation: Conversation, text: string): boolean;
  sendToAll(text: string): boolean;
  stop(conversation: Conversation): void;
  regenerate(conversation: Conversation, reply: Turn): void;
  edit(conversation: Conversation, turn: Turn, text: string): void;
  showSibling(conversation: Conversation, turn: Turn, step: number): void;
  leaveOutAndRetry(conversation: Conversation, reply: Turn): void;
  askForKey(then: () => void): Promise<void>;

  exportAll(): void;
  importFile(): void;
  clearAll(): Promise<void>;
}
